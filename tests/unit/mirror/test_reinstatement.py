"""A copy at a site that was failed away from is truncated to the history that both sites share, and
mirrored on from there; what it has alone is in quarantine first, wherever that is interrupted
(G-15, F12).
"""

from __future__ import annotations

import pytest

from mirror.admin.resets import ResetOutcome, TopicReset
from mirror.admin.verifier import Comparison
from mirror.assembly import Mirror
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.partitions import PartitionKey
from mirror.link.ports import Unreachable
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_sites import MemoryWorld
from tests.unit.mirror.test_reset_quarantine import COPY_ID, FIRST, Comparing, Killed, diverged, faulted, kept

SECOND = PartitionKey("orders", 1)


async def reinstate(mirror: Mirror, *, is_dry_run: bool = False) -> TopicReset:
    (found,) = await mirror.parts.resets.reset(["orders"], is_dry_run=is_dry_run, keeps_copies=True)
    return found


def shared(world: MemoryWorld) -> list[bytes]:
    """The batches of the first partition that both sites have."""
    return world.target.logs[FIRST].batches[:4]


async def test_only_what_the_site_has_alone_leaves_its_copy() -> None:
    world = diverged()
    before = shared(world)
    tail = dict(zip((12, 15, 18), world.target.logs[FIRST].batches[4:], strict=True))
    async with mirroring(world) as mirror:
        await faulted(mirror)
        planned = await reinstate(mirror, is_dry_run=True)
        assert (planned.outcome, planned.partitions[0].kept_from_offset) == (ResetOutcome.PLANNED, 12)
        assert not world.target.quarantined
        assert (await reinstate(mirror)).outcome is ResetOutcome.TRUNCATED
        assert kept(world.target) == tail
        assert not kept(world.target, SECOND)
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
    assert world.target.logs[FIRST].batches[:4] == before
    assert world.target.ids["orders"] == COPY_ID, "the topic is not deleted"


@pytest.mark.parametrize("step", ["before_keep", "after_truncation"])
@pytest.mark.parametrize("error", [Killed(), Unreachable("site b is down")], ids=["killed", "unreachable"])
async def test_an_interruption_at_any_step_leaves_each_record_in_the_copy_or_in_quarantine(
    step: str, error: Exception
) -> None:
    world = diverged()
    tail = dict(zip((12, 15, 18), world.target.logs[FIRST].batches[4:], strict=True))

    def interrupt() -> None:
        raise error

    async with mirroring(world) as mirror:
        await faulted(mirror)
        setattr(world.target, step, interrupt)
        with pytest.raises(type(error)):
            await reinstate(mirror)
        in_copy = set(world.target.logs[FIRST].batches)
        assert set(tail.values()) <= in_copy | set(kept(world.target).values())
    setattr(world.target, step, lambda: None)
    async with mirroring(world) as again:
        if step == "before_keep":
            await faulted(again)
            assert (await reinstate(again)).outcome is ResetOutcome.TRUNCATED
        await eventually(world.is_equal)
    assert kept(world.target) == tail


async def test_a_quarantine_that_refuses_leaves_the_copy_as_it_is() -> None:
    world = diverged()
    before = world.target.logs[FIRST].data
    world.target.quarantine_refusal = "policy_violation: the quarantine of orders-0 has room for 5 bytes"
    async with mirroring(world) as mirror:
        await faulted(mirror)
        refused = await reinstate(mirror)
        assert refused.outcome is ResetOutcome.REFUSED
        assert "not every copy was truncated: orders-0: policy_violation" in refused.reason
        assert world.target.logs[FIRST].data == before


@pytest.mark.parametrize(
    "found",
    [Comparison(finding="the batch at offset 9 differs"), Comparison(finding="no answer", is_known=False)],
    ids=["differs", "unknown"],
)
async def test_a_copy_without_a_known_shared_history_is_refused(found: Comparison) -> None:
    world = diverged()
    world.verifier = Comparing(found)
    before = world.target.logs[FIRST].data
    async with mirroring(world) as mirror:
        await faulted(mirror)
        refused = await reinstate(mirror)
        assert refused.outcome is ResetOutcome.REFUSED
        assert "of orders-0 no record is known to be the source's" in refused.reason
        assert world.target.logs[FIRST].data == before


async def test_a_copy_that_is_mirrored_is_left_alone() -> None:
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        assert (await reinstate(mirror)).outcome is ResetOutcome.NOTHING


async def test_a_topic_that_was_made_again_at_the_source_is_refused() -> None:
    world = diverged()
    async with mirroring(world) as mirror:
        await faulted(mirror)
        world.source.delete("orders")
        world.source.add("orders", 2, number=9)
        before = world.target.logs[FIRST].data
        assert (await reinstate(mirror)).outcome in (ResetOutcome.REFUSED, ResetOutcome.NOTHING)
        assert world.target.logs[FIRST].data == before
