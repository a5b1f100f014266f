"""Streaming queries that outlast a late Python worker of Spark's.

At each start of a query whose source is written in Python, Spark starts a Python process, and ends
the query when that process has not connected within 10 s. No option of Spark changes this limit
(`createSimpleWorker` of `PythonWorkerFactory`, Spark 4), and a busy machine may need longer. A
query that is started again continues from its checkpoint, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pyspark.errors import StreamingQueryException

LATE_WORKER: Final = "Python worker failed to connect back"
"""Spark's exception for such a query."""
STARTS_MAX: Final = 4
POLL_S: Final = 1


class Query(Protocol):
    """The part of Spark's `StreamingQuery` that this module uses."""

    def awaitTermination(self, timeout: int) -> bool | None:  # noqa: N802 - Spark's name
        """Whether the query ends within the time (s). Raises StreamingQueryException."""

    def stop(self) -> None:
        """End the query."""


def run_queries(*starts: Callable[[], Query], is_over: Callable[[], bool] = lambda: False) -> None:
    """Start queries and wait until all have ended, or until `is_over`, which is asked at least
    every `POLL_S` s for each query. A query whose Python worker is late is started again, up to
    `STARTS_MAX` starts each. Raises the StreamingQueryException of the first query that fails
    otherwise; no query runs when this returns or raises.
    """
    begun = [1] * len(starts)
    running: dict[int, Query] = {}
    try:
        for number, start in enumerate(starts):
            running[number] = start()
        while running and not is_over():
            for number, query in list(running.items()):
                try:
                    if query.awaitTermination(POLL_S):
                        del running[number]
                except StreamingQueryException as error:
                    if LATE_WORKER not in str(error) or begun[number] == STARTS_MAX:
                        raise
                    begun[number] += 1
                    running[number] = starts[number]()
    finally:
        for query in running.values():
            query.stop()
