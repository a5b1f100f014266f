"""Lines about the batches of streaming queries while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cli.shared.output import report_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S: Final = 5.0


@contextmanager
def reported_batches(spark: SparkSession, *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """In the block, print the last batch of each query and the number of its records, whenever a
    query has a new batch with records.
    """
    reported = _Batches(spark)
    is_over = threading.Event()

    def report() -> None:
        while not is_over.wait(interval_s):
            reported.report()

    thread = threading.Thread(target=report, name="batches of queries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class _Batches:
    """The last batch of each query that was reported, by the id of its run."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._last_batch: dict[str, int] = {}

    def report(self) -> None:
        """Print what is new."""
        for query in self._spark.streams.active:
            progress = query.lastProgress
            if progress is None or not progress.numInputRows:
                continue
            if self._last_batch.get(str(query.runId)) != progress.batchId:
                self._last_batch[str(query.runId)] = progress.batchId
                name = query.name or "the query"
                report_progress(f"{name}: batch {progress.batchId} has {progress.numInputRows:,} records")
