"""The window of batches that are queued or in flight."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mirror.flow.core.window import JOINED_BYTES_MAX, ChainBroken, QueuedBatches, SendWindow
from mirror.link.core.partitions import BatchRun
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)


def entry(first: int, after: int, generation: int = 0, size_bytes: int = JOINED_BYTES_MAX) -> QueuedBatches:
    """An entry that is not joined with others, unless it is small."""
    run = BatchRun(
        first_offset=first,
        next_offset=after,
        size_bytes=size_bytes,
        record_count=1,
        first_epoch=0,
        last_epoch=0,
        max_timestamp_ms=-1,
    )
    return QueuedBatches(
        key=KEY, generation=generation, expected_log_end_offset=first, run=run, records=memoryview(b"")
    )


def window_with(*entries: QueuedBatches) -> SendWindow:
    window = SendWindow()
    for one in entries:
        assert window.push(one)
    return window


def test_after_a_failure_nothing_is_sent_until_everything_in_flight_is_answered() -> None:
    first, second, third = entry(0, 1), entry(1, 2), entry(2, 3)
    window = window_with(first, second, third)
    window.mark_sent()
    window.mark_sent()
    window.fail(first)
    assert window.next_to_send() is None
    window.fail(second)
    assert window.next_to_send() is first


def test_an_acknowledged_end_covers_all_entries_below_it() -> None:
    first, second = entry(0, 1), entry(1, 2)
    window = window_with(first, second)
    window.mark_sent()
    window.mark_sent()
    assert window.acknowledge(first, 2) == [first, second]
    assert window.acknowledge(second, 2) == []
    assert window.is_idle


def test_a_hole_in_the_chain_is_refused() -> None:
    with pytest.raises(ChainBroken):
        window_with(entry(0, 1)).push(entry(2, 3))


def test_a_discarded_generation_is_settled_with_its_last_answer() -> None:
    first, second = entry(0, 1), entry(1, 2)
    window = window_with(first, second)
    window.mark_sent()
    assert window.discard(1) == JOINED_BYTES_MAX
    assert window.settle() is None
    assert window.acknowledge(first, 1) == []
    assert window.settle() == JOINED_BYTES_MAX
    assert not window.push(entry(1, 2, generation=0))
    assert window.push(entry(1, 2, generation=1))


def small(first: int, after: int, value: bytes, **run: int) -> QueuedBatches:
    made = entry(first, after, size_bytes=len(value))
    return replace(made, run=replace(made.run, **run), records=memoryview(value), skipped=frozenset({first}))


def test_small_entries_that_wait_are_joined() -> None:
    window = window_with(small(0, 2, b"ab"), small(2, 3, b"cd"), small(3, 7, b"ef"))
    whole = window.next_to_send()
    assert whole is not None
    assert (whole.run.first_offset, whole.run.next_offset, whole.run.record_count) == (0, 7, 3)
    assert (bytes(whole.records), whole.size_bytes, whole.skipped) == (b"abcdef", 6, {0, 2, 3})
    window.mark_sent()
    assert window.acknowledge(whole, 7) == [whole]
    assert window.is_idle


def test_an_entry_that_was_sent_stays_as_it_is() -> None:
    """Also when it is to be sent again: the target may have it."""
    first = small(0, 1, b"a")
    window = window_with(first)
    window.mark_sent()
    assert window.push(small(1, 2, b"b"))
    window.fail(first)
    assert window.push(small(2, 3, b"c"))
    assert window.next_to_send() is first
    window.mark_sent()
    rest = window.next_to_send()
    assert rest is not None
    assert bytes(rest.records) == b"bc"


def test_large_entries_and_repetitions_are_not_joined() -> None:
    first, large = small(0, 1, b"a"), entry(1, 2)
    repetition = small(2, 3, b"c", repeated_bytes=1)
    last = small(3, 4, b"d")
    window = window_with(first, large, repetition, last)
    assert window.unacknowledged == (first, large, repetition, last)
    window.discard(1)
    assert window.is_idle
