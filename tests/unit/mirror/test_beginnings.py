"""Records that expired unmirrored are a gap of an empty copy too, for any daemon that finds it;
records that were gone before the copy was created are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.flow.core.flow_state import FlowState
from mirror.link.ports import LogAnswer, Unreachable
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition
from wire.rules.topic_configs import COPY_BEGINS

FIRST = TopicPartition("orders", 0)
WITHIN_MS = 20_000


def expire(world: MemoryWorld, *, batches: int = 4, key: TopicPartition = FIRST) -> None:
    """Records (3 a batch) come at the source and expire, but for the last batch."""
    world.source.produce(key.topic, key.partition, batches + 1)
    log = world.source.logs[key]
    log.start += batches * 3
    log.batches = log.batches[-1:]


def with_old_records_gone(*, partitions: int = 1) -> MemoryWorld:
    """A topic whose first 12 records the source deleted before there was a mirror."""
    world = world_with(partitions=partitions, batches=0)
    for partition in range(partitions):
        expire(world, key=TopicPartition("orders", partition))
    return world


async def is_a_gap_of(mirror: Any, offsets: int) -> None:
    await eventually(lambda: states(mirror) == {FlowState.GAP}, WITHIN_MS)
    assert f"{offsets} offsets expired" in mirror.board.row(FIRST).facts.reason


async def test_records_that_expired_while_no_mirror_ran_are_a_gap_of_a_copy_that_was_empty() -> None:
    world = world_with(partitions=1, batches=0)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING}, WITHIN_MS)
    expire(world)
    for _ in range(2):
        async with mirroring(world) as mirror:
            await is_a_gap_of(mirror, 12)
    assert world.target.logs[FIRST].end == 0


async def test_records_that_expired_before_an_idle_mirror_saw_them_are_a_gap_of_a_copy_that_was_empty() -> None:
    world = world_with(partitions=1, batches=0)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING}, WITHIN_MS)
        expire(world)
        await is_a_gap_of(mirror, 12)


async def test_records_that_an_empty_copy_missed_are_counted_where_gaps_are_skipped() -> None:
    world = world_with(partitions=1, batches=0)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING}, WITHIN_MS)
    expire(world)
    async with mirroring(world, **{"antipode.gap.policy": "skip-and-record"}) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        assert mirror.board.row(FIRST).facts.skipped_records == 12


async def test_a_copy_that_was_made_and_never_looked_at_begins_where_the_source_did_then() -> None:
    """The daemon dies after it created the topic and before its first fetch. Its successor must
    report a gap exactly if there is one.
    """
    world = with_old_records_gone()
    world.source.is_up = False
    world.target.add("orders", 1)
    world.target.topic_configs["orders"] = {COPY_BEGINS: "0:12"}
    async with mirroring(world) as mirror:
        world.source.is_up = True
        await eventually(world.is_equal, WITHIN_MS)
        assert mirror.board.row(FIRST).facts.skipped_records == 0
    assert world.target.logs[FIRST].start == 12


async def test_of_a_copy_that_was_never_looked_at_only_what_expired_since_it_was_made_is_a_gap() -> None:
    world = with_old_records_gone()
    world.target.add("orders", 1)
    world.target.topic_configs["orders"] = {COPY_BEGINS: "0:12"}
    expire(world, batches=2)
    async with mirroring(world) as mirror:
        await is_a_gap_of(mirror, 6)


async def test_a_first_batch_across_the_source_s_log_start_that_finds_no_room_is_fetched_again() -> None:
    """The source has no offset where the batch begins, only where its own log does."""
    world = with_old_records_gone(partitions=2)
    for log in world.source.logs.values():
        log.start, log.batches = 13, [batch([b"x" * 400_000] * 3, base_offset=12)]
    may_append = False
    world.before_append = lambda: None if may_append else ErrorCode.not_leader_or_follower
    async with mirroring(world, **{"queue.enqueue.timeout.ms": "0", "queue.byte.size": "1048576"}) as mirror:
        # The queue takes what is larger than itself only while it is empty.
        await eventually(lambda: mirror.queue.timeouts > 1, WITHIN_MS)
        assert FlowState.GAP not in states(mirror)
        may_append = True
        await eventually(world.is_equal, WITHIN_MS)


async def test_topics_are_made_with_where_they_begin_and_those_that_begin_at_zero_without() -> None:
    world = with_old_records_gone(partitions=2)
    world.source.add("fresh", 2, number=2)
    world.source.produce("fresh", 1)
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
    assert world.target.topic_configs == {"orders": {COPY_BEGINS: "0:12,1:12"}, "fresh": {}}


async def test_where_a_copy_begins_is_no_difference_between_the_sites() -> None:
    world = with_old_records_gone()
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
        world.source.topic_configs["orders"] = {"retention.ms": "5", COPY_BEGINS: "0:3"}
        wanted = {"retention.ms": "5", COPY_BEGINS: "0:12"}
        await eventually(lambda: world.target.topic_configs["orders"] == wanted, WITHIN_MS)


async def test_a_source_that_does_not_tell_where_it_begins_is_followed_from_where_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_old_records_gone()
    ask = world.source.log_ends

    async def silent_at_first(leaders: Any) -> Mapping[TopicPartition, LogAnswer]:
        monkeypatch.setattr(world.source, "log_ends", ask)
        return dict.fromkeys(leaders, Unreachable("no answer"))

    monkeypatch.setattr(world.source, "log_ends", silent_at_first)
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
    assert world.target.topic_configs["orders"] == {COPY_BEGINS: "0:-1"}


async def test_a_partition_that_came_later_and_expired_unseen_is_a_gap() -> None:
    world = with_old_records_gone()
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
    second = TopicPartition("orders", 1)
    world.source.add("orders", 2)
    expire(world, key=second)
    async with mirroring(world) as mirror:
        await eventually(lambda: second in mirror.board, WITHIN_MS)
        await eventually(lambda: mirror.board.row(second).facts.state is FlowState.GAP, WITHIN_MS)
        assert mirror.board.row(FIRST).facts.state is FlowState.MIRRORING


async def test_nothing_is_mirrored_before_the_target_has_returned_where_the_copy_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_old_records_gone()
    tell = world.target.configs
    asked: list[Sequence[str]] = []

    async def not_yet(names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        asked.append(names)
        return {}

    monkeypatch.setattr(world.target, "configs", not_yet)
    async with mirroring(world) as mirror:
        await eventually(lambda: len(asked) > 2, WITHIN_MS)
        assert len(mirror.board) == 0
        monkeypatch.setattr(world.target, "configs", tell)
        await eventually(world.is_equal, WITHIN_MS)


async def test_a_copy_made_anew_after_a_gap_begins_where_the_source_does_now() -> None:
    world = world_with(partitions=1, batches=0)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING}, WITHIN_MS)
        expire(world)
        await is_a_gap_of(mirror, 12)
        await mirror.resets.reset(["orders"], is_dry_run=False)
        await eventually(world.is_equal, WITHIN_MS)
        assert states(mirror) == {FlowState.MIRRORING}
    assert world.target.topic_configs["orders"] == {COPY_BEGINS: "0:12"}
