"""Lists of records on their way to a topic: both limits, the last list, a send that fails."""

from __future__ import annotations

import pytest

from spark_jobs.pipelines.core.record_list import RecordList


def sent(values: list[bytes], *, bytes_max: int = 1_000, records_max: int = 1_000) -> list[list[bytes]]:
    lists: list[list[bytes]] = []
    records = RecordList(send=lists.append, bytes_max=bytes_max, records_max=records_max)
    for value in values:
        records.add(value)
    records.close()
    return lists


def test_a_list_is_sent_before_it_has_more_than_either_limit_and_the_last_one_at_the_end() -> None:
    assert sent([]) == []
    assert sent([b"aa", b"bb", b"c"], bytes_max=4) == [[b"aa", b"bb"], [b"c"]]
    assert sent([b"aa", b"bbb", b"c"], bytes_max=4) == [[b"aa"], [b"bbb", b"c"]]
    assert sent([b"a", b"b", b"c"], records_max=2) == [[b"a", b"b"], [b"c"]]
    assert sent([b"longer than the limit", b"a"], bytes_max=4) == [[b"longer than the limit"], [b"a"]]


def test_a_send_that_fails_fails_the_one_who_adds() -> None:
    def fail(_: list[bytes]) -> None:
        raise OSError("no broker")

    records = RecordList(send=fail, bytes_max=1)
    records.add(b"a")
    with pytest.raises(OSError, match="no broker"):
        records.add(b"b")
    with pytest.raises(OSError, match="no broker"):
        records.close()
