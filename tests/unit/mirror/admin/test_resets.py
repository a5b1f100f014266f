"""Copies that cannot be continued, and topics that the target refuses: the mirror names them, and
makes them anew only on request (M9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from mirror.admin.resets import ResetOutcome, TopicReset
from mirror.admin.service import describe
from mirror.assembly import Mirror
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.topic_plan import DeleteCopy
from mirror.link.ports import Leader
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import InvalidPattern

FIRST = TopicPartition("orders", 0)
REFUSAL = "invalid_replication_factor Replication factor: 3 larger than available brokers: 2."


def recreate(world: MemoryWorld, *, number: int = 7, batches: int = 2) -> None:
    world.source.delete("orders")
    world.source.add("orders", 1, number=number)
    world.source.produce("orders", 0, batches)


async def reset(mirror: Mirror, *patterns: str, is_dry_run: bool = False) -> Sequence[TopicReset]:
    return await mirror.resets.reset(patterns or ("orders",), is_dry_run=is_dry_run)


async def is_in(mirror: Mirror, state: FlowState, reason: str = "") -> None:
    await eventually(lambda: states(mirror) == {state})
    await eventually(lambda: reason in mirror.board.row(FIRST).facts.reason)


async def test_a_topic_made_again_is_named_with_both_ids_and_mirrored_from_its_start_once_its_copy_is_put_away() -> (
    None
):
    world = world_with(partitions=1, batches=5)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.delete("orders")
        await is_in(mirror, FlowState.RESET, "the source has deleted topic")
        world.source.add("orders", 1, number=7)
        world.source.produce("orders", 0, 2)
        await is_in(
            mirror, FlowState.RESET, f"has id {UUID(int=7)} at the source, the target's copy is of id {UUID(int=1)}"
        )
        assert "`antipode links reset`" in describe(mirror).reason
        (planned,) = await reset(mirror, is_dry_run=True)
        assert (planned.outcome, planned.copy_id) == (ResetOutcome.PLANNED, UUID(int=1))
        assert [(log.log_start_offset, log.log_end_offset) for log in planned.partitions] == [(0, 15)]
        assert world.target.ids["orders"] == UUID(int=1)
        (done,) = await reset(mirror)
        assert (done.outcome, done.partitions) == (ResetOutcome.PUT_AWAY, planned.partitions)
        await eventually(world.is_equal)
        assert world.target.ids["orders"] == UUID(int=7)
        await is_in(mirror, FlowState.MIRRORING)


async def test_a_topic_that_the_source_hides_keeps_its_copy_and_goes_on_when_it_is_shown_again() -> None:
    """The topic may still exist: the lost right to see it is no reason to remove its copy."""
    world = world_with(partitions=1, batches=5)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.hidden.add("orders")
        await is_in(mirror, FlowState.SOURCE_UNAVAILABLE, "the mirror does not know whether it still exists")
        assert describe(mirror).state == "SOURCE_UNAVAILABLE"
        await eventually(lambda: mirror.board.lag(FIRST).records == UNKNOWN)
        (refused,) = await reset(mirror)
        assert refused.outcome is ResetOutcome.REFUSED
        assert "topic_authorization_failed" in refused.reason
        assert (await reset(mirror, is_dry_run=True))[0].outcome is ResetOutcome.REFUSED
        mirror.pauses.pause(["orders"])
        await is_in(mirror, FlowState.PAUSED)
        rounds_at_ms = mirror.topics.synced_at_ms
        await eventually(lambda: mirror.topics.synced_at_ms > rounds_at_ms + 100)
        assert states(mirror) == {FlowState.PAUSED}
        mirror.pauses.resume(["orders"])
        await is_in(mirror, FlowState.SOURCE_UNAVAILABLE, "the mirror does not know whether it still exists")
        assert world.target.ids["orders"] == UUID(int=1)
        world.source.produce("orders", 0, 2)
        world.source.hidden.clear()
        await eventually(world.is_equal)
        await is_in(mirror, FlowState.MIRRORING)
        assert DeleteCopy not in {type(action) for request in world.target.requests for action in request}


async def test_a_topic_that_is_hidden_when_the_mirror_starts_is_shown_and_mirrored_when_it_may_be() -> None:
    world = world_with(partitions=1, batches=5)
    async with mirroring(world):
        await eventually(world.is_equal)
    world.source.hidden.add("orders")
    world.source.produce("orders", 0, 2)
    async with mirroring(world) as mirror:
        await is_in(mirror, FlowState.SOURCE_UNAVAILABLE, "topic_authorization_failed")
        world.source.delete("orders")
        await is_in(mirror, FlowState.SOURCE_UNAVAILABLE, "topic_authorization_failed")
        world.source.hidden.clear()
        await is_in(mirror, FlowState.RESET, "the source has deleted topic")
        world.source.hidden.add("orders")
        await is_in(mirror, FlowState.SOURCE_UNAVAILABLE, "topic_authorization_failed")


async def test_a_topic_that_a_list_just_lacks_is_not_taken_for_deleted() -> None:
    world = world_with(partitions=1, batches=5)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.unlisted.add("orders")
        rounds_at_ms = mirror.topics.synced_at_ms
        await eventually(lambda: mirror.topics.synced_at_ms > rounds_at_ms + 100)
        (refused,) = await reset(mirror)
        assert (refused.outcome, refused.reason) == (
            ResetOutcome.REFUSED,
            "topic orders was missing from the source's last metadata",
        )
        assert states(mirror) == {FlowState.MIRRORING}
        world.source.produce("orders", 0, 2)
        await eventually(world.is_equal)


async def test_a_topic_that_is_mirrored_or_already_deleted_is_left_alone() -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        (refused,) = await reset(mirror, ".*")
        assert refused.outcome is ResetOutcome.REFUSED
        assert "is MIRRORING: only RESET, FAULTED, GAP and missing tombstones are repaired" in refused.reason
        assert world.is_equal()
        assert await reset(mirror, "unheard-of") == []
        with pytest.raises(InvalidPattern):
            await mirror.resets.reset([], is_dry_run=True)
        recreate(world)
        await is_in(mirror, FlowState.RESET)
        world.target.delete("orders")
        world.target.refusal = REFUSAL
        (nothing,) = await reset(mirror)
        assert nothing.outcome is ResetOutcome.NOTHING


async def test_a_copy_that_cannot_be_counted_or_that_the_controller_keeps_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        recreate(world)
        await is_in(mirror, FlowState.RESET)
        world.target.refusal = "policy_violation link 'a-b' is at epoch 2"
        (refused,) = await reset(mirror)
        assert (refused.outcome, refused.reason) == (ResetOutcome.REFUSED, world.target.refusal)
        world.target.refusal = ""

        async def silent(_: object) -> dict[TopicPartition, object]:
            return {}

        monkeypatch.setattr(world.target, "log_ends", silent)
        (refused,) = await reset(mirror)
        assert refused.reason == "the records that the reset would remove cannot be counted: orders-0: no answer"
        assert world.target.ids["orders"] == UUID(int=1)


async def test_a_leader_with_another_history_is_found_out_although_its_log_is_longer() -> None:
    """M1: the source had an unclean election, and metadata shows it before any fetch fails."""
    world = world_with(partitions=1, batches=4)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        before = world.target.logs[FIRST].data
        log = world.source.logs[FIRST]
        del log.batches[2:]
        world.source.produce("orders", 0, 6, epoch=1)
        world.source.leader = Leader(1002, 1)
        await is_in(mirror, FlowState.FAULTED, "histories diverge at offset 6")
        assert world.target.logs[FIRST].data == before


async def test_a_diverged_copy_is_made_anew_from_where_the_source_now_begins() -> None:
    """F12: its end is another history than the source's, whose log begins above zero by now."""
    world = MemoryWorld()
    world.source.add("orders", 1)
    world.target.add("orders", 1)
    world.source.produce("orders", 0, 5, epoch=7)
    world.target.produce("orders", 0, 9, epoch=3)
    log = world.source.logs[FIRST]
    log.start, log.batches = 6, log.batches[2:]
    async with mirroring(world) as mirror:
        await is_in(mirror, FlowState.FAULTED, "leader epoch")
        (done,) = await reset(mirror)
        assert (done.outcome, done.partitions[0].log_end_offset) == (ResetOutcome.PUT_AWAY, 27)
        await eventually(world.is_equal)
        await is_in(mirror, FlowState.MIRRORING)


@pytest.mark.parametrize("is_refused", [False, True], ids=["copy removed", "copy put away, new one refused"])
async def test_a_mirror_that_dies_after_a_copy_was_put_away_is_followed_by_one_that_makes_it_anew(
    is_refused: bool,
) -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        recreate(world, batches=4)
        await is_in(mirror, FlowState.RESET)
        await reset(mirror)
        if is_refused:
            world.target.ids.pop("orders", None)
            world.target.logs.clear()
            world.target.refusal = REFUSAL
            await is_in(mirror, FlowState.REFUSED)
    world.target.refusal = ""
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await is_in(mirror, FlowState.MIRRORING)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


async def test_a_topic_that_the_target_refuses_to_make_is_a_state_with_a_reason_and_a_lag_that_is_never_zero(
    registry: CollectorRegistry,
) -> None:
    """MM-28."""
    world = world_with(partitions=2, batches=2)
    world.target.refusal = REFUSAL
    labels = {"link": "a-b", "topic": "orders", "partition": "0"}
    async with mirroring(world, registry=registry) as mirror:
        await is_in(mirror, FlowState.REFUSED, REFUSAL)
        described = describe(mirror)
        assert (described.state, len(described.partitions)) == ("REFUSED", 2)
        assert {partition.lag_records for partition in described.partitions} == {-1}
        assert registry.get_sample_value("antipode_mirror_state", labels | {"state": "REFUSED"}) == 1
        assert math.isnan(registry.get_sample_value("antipode_mirror_lag_records", labels) or 0)
        assert registry.get_sample_value("antipode_mirror_refused_changes", {"link": "a-b", "topic": "orders"}) == 1
        world.target.refusal = ""
        await eventually(world.is_equal)
        await is_in(mirror, FlowState.MIRRORING)
        labels = {"link": "a-b", "topic": "orders"}
        await eventually(lambda: registry.get_sample_value("antipode_mirror_refused_changes", labels) is None)


async def test_partitions_that_the_target_refuses_to_add_are_named_while_the_others_are_mirrored() -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.target.refusal = "invalid_partitions too many"
        world.source.logs[TopicPartition("orders", 1)] = type(world.source.logs[FIRST])()
        second = TopicPartition("orders", 1)
        await eventually(lambda: second in mirror.board and mirror.board.row(second).facts.state is FlowState.REFUSED)
        assert "grow topic orders to 2 partitions: invalid_partitions too many" in mirror.board.row(second).facts.reason
        assert mirror.board.row(FIRST).facts.state is FlowState.MIRRORING


async def test_a_copy_that_may_lack_tombstones_is_shown_counted_and_made_anew_when_asked(
    registry: CollectorRegistry,
) -> None:
    """M8: the mirror starts with a hole before the first record, in a topic that keeps tombstones
    for a moment only.
    """
    world = world_with(partitions=1, batches=2)
    world.source.topic_configs["orders"] = {"cleanup.policy": "compact", "delete.retention.ms": "1"}
    async with mirroring(world):
        await eventually(world.is_equal)
    world.source.produce("orders", 0, 3)
    del world.source.logs[FIRST].batches[2]
    labels = {"link": "a-b", "topic": "orders", "partition": "0"}
    async with mirroring(world, registry=registry) as mirror:
        await eventually(lambda: registry.get_sample_value("antipode_mirror_missing_tombstones", labels) == 1)
        await eventually(lambda: "keys deleted in that time may remain" in describe(mirror).partitions[0].reason)
        del world.source.logs[FIRST].batches[0]
        (done,) = await reset(mirror)
        assert done.outcome is ResetOutcome.PUT_AWAY
        world.source.topic_configs["orders"]["delete.retention.ms"] = "600000"
        await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})
