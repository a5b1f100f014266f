"""Queries whose Python worker is late. Promised: such a query is started again, a few times; other
failures are raised at once; no query runs on after a failure.
"""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from spark_jobs.streaming import LATE_WORKER, STARTS_MAX, Query, run_queries

LATE = f"[STREAM_FAILED] Query terminated with exception: {LATE_WORKER}."
STILL_RUNNING = "still running"


class ScriptedQueries:
    """A job whose starts end as scripted: with a message that Spark raises, or well (empty)."""

    def __init__(self, *outcomes: str) -> None:
        self.outcomes = outcomes
        self.starts = 0
        self.stopped: list[int] = []

    def __call__(self) -> Query:
        self.starts += 1
        return ScriptedQuery(self, self.starts)


class ScriptedQuery:
    """One start of a job."""

    def __init__(self, job: ScriptedQueries, number: int) -> None:
        self.job, self.number = job, number

    def awaitTermination(self, timeout: int) -> bool:
        outcome = self.job.outcomes[self.number - 1]
        if outcome in ("", STILL_RUNNING):
            return not outcome
        raise StreamingQueryException(outcome)

    def stop(self) -> None:
        self.job.stopped.append(self.number)


def test_a_query_is_started_again_until_its_worker_is_in_time() -> None:
    late, well = ScriptedQueries(LATE, LATE, ""), ScriptedQueries("")
    run_queries(late, well)
    assert (late.starts, well.starts) == (3, 1)


def test_a_worker_that_is_late_at_each_start_is_raised_at_last() -> None:
    late = ScriptedQueries(*[LATE] * (STARTS_MAX + 1))
    with pytest.raises(StreamingQueryException, match=LATE_WORKER):
        run_queries(late)
    assert late.starts == STARTS_MAX


def test_any_other_failure_is_raised_at_once_and_ends_the_other_queries() -> None:
    failed, other = ScriptedQueries("the topic is gone", ""), ScriptedQueries(STILL_RUNNING)
    with pytest.raises(StreamingQueryException, match="the topic is gone"):
        run_queries(failed, other)
    assert (failed.starts, other.stopped) == (1, [1])
