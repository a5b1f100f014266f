"""Records that `links reset` removes and that the source does not have are in quarantine first, for
an interruption at any step (G-15, F12).
"""

from __future__ import annotations

from uuid import UUID

import pytest

from mirror.admin.resets import ResetOutcome, TopicReset
from mirror.admin.verifier import Comparison
from mirror.assembly import Mirror
from mirror.flow.core.flow_state import FlowState
from mirror.link.ports import Unreachable
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states
from tests.support.memory.memory_sites import MemorySite
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
COPY_ID = UUID(int=1)


def diverged() -> MemoryWorld:
    """Both partitions have four batches of one history; the copy of the first continues alone under
    epoch 3, the source under epoch 7.
    """
    world = MemoryWorld()
    for site in (world.source, world.target):
        site.add("orders", 2)
        for partition in range(2):
            site.produce("orders", partition, 4, epoch=2)
    world.target.produce("orders", 0, 3, epoch=3)
    world.source.produce("orders", 0, 5, epoch=7)
    world.source.produce("orders", 1, 5, epoch=2)
    return world


async def faulted(mirror: Mirror) -> None:
    await eventually(lambda: FlowState.FAULTED in states(mirror) and FlowState.PREPARING not in states(mirror))


async def reset(mirror: Mirror, *, is_dry_run: bool = False) -> TopicReset:
    (found,) = await mirror.resets.reset(["orders"], is_dry_run=is_dry_run)
    return found


def kept(site: MemorySite, key: TopicPartition = FIRST) -> dict[int, bytes]:
    return site.quarantined.get((key, COPY_ID), {})


async def test_the_tail_that_the_source_does_not_have_is_kept_and_no_more() -> None:
    world = diverged()
    tail = dict(zip((12, 15, 18), world.target.logs[FIRST].batches[4:], strict=True))
    async with mirroring(world) as mirror:
        await faulted(mirror)
        planned = await reset(mirror, is_dry_run=True)
        first, second = planned.partitions
        assert (first.partition, first.kept_from_offset, first.log_end_offset) == (0, 12, 21)
        assert second.kept_from_offset == second.log_end_offset, "the source has all of it"
        assert not world.target.quarantined
        assert (await reset(mirror)).outcome is ResetOutcome.PUT_AWAY
        assert kept(world.target) == tail
        assert not kept(world.target, SECOND)
        await eventually(world.is_equal)


async def test_of_a_topic_that_was_made_again_the_whole_copy_is_kept() -> None:
    world = MemoryWorld()
    world.source.add("orders", 1)
    world.source.produce("orders", 0, 3)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        whole = dict(zip((0, 3, 6), world.target.logs[FIRST].batches, strict=True))
        world.source.delete("orders")
        world.source.add("orders", 1, number=7)
        await eventually(lambda: states(mirror) == {FlowState.RESET})
        assert (await reset(mirror)).outcome is ResetOutcome.PUT_AWAY
        assert kept(world.target) == whole


async def test_where_the_quarantine_refuses_nothing_is_deleted() -> None:
    world = diverged()
    before = world.target.logs[FIRST].data
    world.target.quarantine_refusal = "policy_violation: the quarantine of orders-0 has room for 5 bytes"
    async with mirroring(world) as mirror:
        await faulted(mirror)
        refused = await reset(mirror)
        assert refused.outcome is ResetOutcome.REFUSED
        assert "nothing was deleted" in refused.reason
        assert "orders-0: policy_violation: the quarantine of orders-0 has room for 5 bytes" in refused.reason
        assert world.target.logs[FIRST].data == before
        world.target.quarantine_refusal = ""
        assert (await reset(mirror)).outcome is ResetOutcome.PUT_AWAY


class Killed(Exception):
    """The mirror ends here."""


@pytest.mark.parametrize("step", ["before_keep", "before_act"])
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
            await reset(mirror)
        in_copy = set(world.target.logs[FIRST].batches)
        assert set(tail.values()) <= in_copy | set(kept(world.target).values())
        assert world.target.ids["orders"] == COPY_ID
    setattr(world.target, step, lambda: None)
    async with mirroring(world) as again:
        await faulted(again)
        assert (await reset(again)).outcome is ResetOutcome.PUT_AWAY
        assert kept(world.target) == tail
        await eventually(world.is_equal)


async def test_a_source_that_does_not_answer_is_not_taken_for_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    world = diverged()
    async with mirroring(world) as mirror:
        await faulted(mirror)

        async def silent(_: object) -> dict[TopicPartition, object]:
            return {}

        monkeypatch.setattr(world.source, "epoch_ends", silent)
        refused = await reset(mirror)
        assert refused.outcome is ResetOutcome.REFUSED
        assert "the source's log of it is not known: orders-0: no answer" in refused.reason


class Comparing:
    """A Verifier with one answer."""

    def __init__(self, found: Comparison) -> None:
        self.found = found
        self.asked: list[tuple[TopicPartition, int, int]] = []

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        self.asked.append((key, mirrored_end, last_offsets))
        return self.found


@pytest.mark.parametrize(
    ("found", "kept_from"),
    [
        (Comparison(), 12),
        (Comparison(finding="the batch at offset 9 differs"), 0),
        (Comparison(finding="no answer", is_known=False), 0),
    ],
    ids=["equal", "differs", "unknown"],
)
async def test_the_same_epochs_with_other_batches_are_another_history(found: Comparison, kept_from: int) -> None:
    """Two sites that both were active in one epoch of the link: the whole copy is kept, since no
    epoch shows the first difference.
    """
    world = diverged()
    world.verifier = comparing = Comparing(found)
    async with mirroring(world) as mirror:
        await faulted(mirror)
        planned = await reset(mirror, is_dry_run=True)
        assert planned.partitions[0].kept_from_offset == kept_from
        assert (FIRST, 12, 1) in comparing.asked
