"""The window of batches that are queued or in flight."""

from __future__ import annotations

import pytest

from mirror.flow.core.window import ChainBroken, QueuedBatches, SendWindow
from mirror.link.core.partitions import BatchRun
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)


def entry(first: int, after: int, generation: int = 0) -> QueuedBatches:
    run = BatchRun(
        first_offset=first,
        next_offset=after,
        size_bytes=10,
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
    assert window.discard(1) == 10
    assert window.settle() is None
    assert window.acknowledge(first, 1) == []
    assert window.settle() == 10
    assert not window.push(entry(1, 2, generation=0))
    assert window.push(entry(1, 2, generation=1))
