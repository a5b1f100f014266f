"""Late offsets of a transaction: none may follow its marker, or come from a fenced producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kio.schema.errors import ErrorCode

from broker.groups.core.group_messages import (
    CommittedOffset,
    CommitTransactionOffsets,
    EndProducerTransaction,
    PartitionsReply,
)
from broker.groups.group_shard import GroupShard
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.coordinator_site import GROUP, T0, Site

PRODUCER = 7


@pytest.fixture
async def site(clock: ManualClock) -> AsyncIterator[Site]:
    made = Site(clock)
    await made.loaded()
    yield made
    made.log.gate.set()
    await made.coordinator.stop()


def offsets(guard: int, *, epoch: int = 0) -> CommitTransactionOffsets:
    return CommitTransactionOffsets(
        group_id=GROUP,
        offsets={T0: CommittedOffset(5, 3, "")},
        producer_id=PRODUCER,
        producer_epoch=epoch,
        guard=guard,
    )


async def with_open_transaction(site: Site) -> GroupShard:
    shard = site.coordinator.admission(GROUP)
    guard = shard.guards.begin(PRODUCER)
    reply = await site.coordinator.commit_in_transaction(shard, offsets(guard))
    shard.guards.end(PRODUCER, guard)
    assert reply.error is ErrorCode.none
    assert shard.has_transaction(PRODUCER, 0)
    return shard


async def test_a_marker_in_the_queue_counts_although_its_sender_gave_up(site: Site) -> None:
    shard = await with_open_transaction(site)
    site.log.gate.clear()
    end = EndProducerTransaction(
        group_id="", producer_id=PRODUCER, producer_epoch=0, is_commit=True, coordinator_epoch=1
    )
    ending = asyncio.ensure_future(shard.end_transaction(end))
    await eventually(lambda: site.log.append_count == 2)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    late = asyncio.ensure_future(shard.ask(offsets(0)))
    site.log.gate.set()
    assert await late == PartitionsReply(error=ErrorCode.invalid_producer_epoch)
    assert site.committed() == 5
    assert not shard.groups.has_pending_offset(GROUP, T0)


async def test_a_fenced_producer_commits_nothing_where_the_coordinator_is_not_asked(site: Site) -> None:
    shard = site.coordinator.admission(GROUP)
    guard = shard.guards.begin(PRODUCER)
    assert (await shard.ask(offsets(guard, epoch=1))) == PartitionsReply(errors={T0: ErrorCode.none})
    assert (await shard.ask(offsets(guard, epoch=0))) == PartitionsReply(error=ErrorCode.invalid_producer_epoch)
    assert shard.has_transaction(PRODUCER, 1)
