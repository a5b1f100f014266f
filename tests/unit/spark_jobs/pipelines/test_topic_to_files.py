"""Which offsets a run of topic-to-files writes."""

from __future__ import annotations

import pytest

from spark_jobs.connector.core.offsets import LogRange
from spark_jobs.connector.core.stream_positions import RecordsLost, lost_records
from spark_jobs.pipelines.core.file_ranges import FileRange, ends_of, ranges_in, ranges_of, text_of

FIRST, SECOND = ("t", 0), ("t", 1)
LOGS = {FIRST: LogRange(20, 50), SECOND: LogRange(0, 50)}


def test_a_run_begins_where_the_last_one_or_the_log_does() -> None:
    def ranges(*ends: int) -> list[tuple[int, int]]:
        last = {key: FileRange(0, end) for key, end in zip(LOGS, ends, strict=False)}
        return [one[:2] for one in ranges_of(last, LOGS, [], is_skipping_lost=False).values()]

    assert ranges() == [(20, 50), (0, 50)]
    assert ranges(10, 30) == [(20, 50), (30, 50)]
    assert ranges(50, 50) == [(50, 50), (50, 50)]
    # A new leader reports an end that is too low for a moment.
    assert ranges(60, 50) == [(60, 60), (50, 50)]


def test_ranges_keep_leader_epochs_and_those_of_earlier_releases_are_read() -> None:
    ranges = {FIRST: FileRange(0, 50, 7), SECOND: FileRange(0, 30)}
    assert ranges_in(text_of(ranges), "t") == ranges
    assert ranges_in('{"0": [0, 50]}', "t") == {FIRST: FileRange(0, 50)}
    assert ends_of(ranges) == ({FIRST: 50, SECOND: 30}, {FIRST: 7})


def test_records_of_the_files_that_the_log_lacks_stop_the_run_or_not_by_option() -> None:
    """Partition 0 has more new records than were lost, which offsets do not show."""
    last = {FIRST: FileRange(0, 45, 3), SECOND: FileRange(0, 70)}
    ends, epochs = ends_of(last)
    lost = lost_records(ends, epochs, {FIRST: (3, 40)}, {key: log.end_offset for key, log in LOGS.items()})
    message = "t-0 has another history from offset 40 on: offsets 40 to 44 of the files.*t-1 .* 50 to 69 .*--skip-lost"
    with pytest.raises(RecordsLost, match=message):
        ranges_of(last, LOGS, lost, is_skipping_lost=False)
    found = ranges_of(last, LOGS, lost, is_skipping_lost=True)
    assert [one[:2] for one in found.values()] == [(40, 50), (50, 50)]
