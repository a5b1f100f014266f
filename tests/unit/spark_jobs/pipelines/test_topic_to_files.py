"""Which offsets a run of topic-to-files writes."""

from __future__ import annotations

import pytest

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.pipelines.topic_to_files import ranges_of

ENDS = {("t", 0): LogEnds(start_offset=20, end_offset=50), ("t", 1): LogEnds(start_offset=0, end_offset=50)}


def test_a_run_begins_where_the_last_one_or_the_log_does() -> None:
    assert ranges_of({}, ENDS) == {0: (20, 50), 1: (0, 50)}
    assert ranges_of({0: 10, 1: 30}, ENDS) == {0: (20, 50), 1: (30, 50)}
    assert ranges_of({0: 50, 1: 50}, ENDS) == {0: (50, 50), 1: (50, 50)}


def test_a_log_that_ends_before_the_files_do_is_refused() -> None:
    """Its offsets are other records; partition 1 has as many new ones as partition 0 lacks."""
    message = "t-0 ends at offset 50, and the files have its offsets up to 70: .*another directory"
    with pytest.raises(OperationalFailure, match=message):
        ranges_of({0: 70, 1: 30}, ENDS)
