"""The queue is bounded in bytes and makes callers wait; it never drops."""

from __future__ import annotations

import asyncio

import pytest

from clients.budget import QueueFull
from mirror.flow.core.priorities import TopicClass, rank_of
from mirror.flow.core.window import QueuedBatches
from mirror.flow.queue import ByteQueue
from mirror.link.core.partitions import BatchRun
from wire.protocol.ids import TopicPartition

BACKFILL = rank_of(TopicClass.NORMAL, is_backfill=True)


def entry(size: int, offset: int = 0) -> QueuedBatches:
    run = BatchRun(
        first_offset=offset,
        next_offset=offset + 1,
        size_bytes=size,
        record_count=1,
        first_epoch=0,
        last_epoch=0,
        max_timestamp_ms=-1,
    )
    return QueuedBatches(
        key=TopicPartition("t", 0), generation=0, expected_log_end_offset=offset, run=run, records=memoryview(b"")
    )


async def test_a_full_queue_makes_callers_wait_in_their_order() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(90))])
    waiting = [asyncio.create_task(queue.put([(0, entry(60, offset))])) for offset in (1, 2)]
    await asyncio.sleep(0)
    assert not queue.has_room_for(1)
    queue.release(90)
    await waiting[0]
    assert not waiting[1].done()
    queue.release(60)
    await waiting[1]
    assert [queue.take(0).run.first_offset for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
    assert queue.used_bytes == 60


async def test_taken_entries_count_until_they_are_released() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=2)
    await queue.put([(1, entry(100))])
    assert queue.take(0) is None
    assert queue.take(1) is not None
    assert not queue.has_room_for(1)


async def test_an_entry_larger_than_the_queue_passes_when_it_is_empty() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(500))])
    assert queue.used_bytes == 500


@pytest.mark.parametrize("timeout_ms", [0, 5])
async def test_a_timeout_queues_nothing(timeout_ms: int) -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1, timeout_ms=timeout_ms)
    await queue.put([(0, entry(100))])
    with pytest.raises(QueueFull):
        await queue.put([(0, entry(1))])
    assert queue.used_bytes == 100
    assert queue.timeouts == 1


async def test_drained_waits_for_the_last_release() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(50))])
    drained = asyncio.create_task(queue.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    queue.release(50)
    await drained


async def test_backfill_leaves_room_for_the_live_tail() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(50))], BACKFILL)
    backfill = asyncio.create_task(queue.put([(0, entry(10, 1))], BACKFILL))
    await asyncio.sleep(0)
    assert queue.has_room_for(50)
    await queue.put([(0, entry(50, 2))])
    assert not backfill.done()
    queue.release(50)
    await asyncio.sleep(0)
    assert not backfill.done(), "half of the queue is still full"
    queue.release(50)
    await backfill
    assert queue.used_bytes == 10


async def test_the_lower_rank_is_let_in_first() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(100))])
    late = asyncio.create_task(queue.put([(0, entry(50, 2))], BACKFILL))
    await asyncio.sleep(0)
    early = asyncio.create_task(queue.put([(0, entry(50, 1))]))
    await asyncio.sleep(0)
    queue.release(100)
    await early
    assert not late.done()
    queue.release(50)
    await late
    assert [queue.take(0).run.first_offset for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]


async def test_a_waiter_that_gives_up_holds_no_room() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(100))])
    waiting = [asyncio.create_task(queue.put([(0, entry(60, offset))])) for offset in (1, 2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    queue.release(100)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert queue.used_bytes == 60


async def test_a_waiter_behind_one_that_gives_up_continues() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    await queue.put([(0, entry(50))])
    large = asyncio.create_task(queue.put([(0, entry(90, 1))]))
    await asyncio.sleep(0)
    small = asyncio.create_task(queue.put([(0, entry(10, 2))]))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    await asyncio.wait([small], timeout=5)
    assert small.done()
    assert queue.used_bytes == 60


async def test_entries_of_one_answer_wait_for_room_together() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=2)
    await queue.put([(0, entry(60))])
    together = asyncio.create_task(queue.put([(0, entry(20, 1)), (1, entry(30, 2))]))
    await asyncio.sleep(0)
    assert queue.take(0) is not None
    assert queue.take(0) is queue.take(1) is None, "the first one alone had room"
    queue.release(60)
    await together
    assert (queue.take(0), queue.take(1)) == (entry(20, 1), entry(30, 2))
    assert queue.used_bytes == 50


def test_half_of_what_a_rank_may_fill_waits_together() -> None:
    queue = ByteQueue(capacity_bytes=100, lanes=1)
    assert queue.takes_together(50)
    assert not queue.takes_together(51)
    assert queue.takes_together(25, BACKFILL)
    assert not queue.takes_together(26, BACKFILL)
