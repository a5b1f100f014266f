"""The first offset of a copy, in a config of the copy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.flow.core.beginnings import read, written
from wire.protocol.ids import UNKNOWN
from wire.rules.topic_configs import COPY_BEGINS, check_overrides


@given(st.dictionaries(st.integers(0, 10_000), st.integers(UNKNOWN, 1 << 62)))
def test_starts_that_are_written_are_accepted_and_read_again_without_those_at_zero(starts: dict[int, int]) -> None:
    text = written(starts)
    check_overrides({COPY_BEGINS: text})
    assert read(text) == {partition: start for partition, start in starts.items() if start}


def test_malformed_entries_are_left_out() -> None:
    assert read("") == {}
    assert read("0:5,x:7,1,2:-7,3:") == {0: 5}
