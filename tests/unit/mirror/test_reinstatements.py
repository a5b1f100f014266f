"""A copy with records of its own becomes a standby again: these go into quarantine, the copy is
truncated, and only what it lacks crosses the line.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from mirror.admin.reinstatements import Reinstatements, ReinstateOutcome
from mirror.admin.verifier import Comparison
from mirror.assembly import Mirror
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_decisions import Decision
from mirror.flow.core.flow_events import Command, CopyReinstated
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.ports import Unreachable
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition
from wire.rules.links import ReinstatePolicy

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
COPY_ID = UUID(int=1)
FAULTED = {FlowState.FAULTED}
PROMOTED_FROM = 5
"""The active site was promoted above this leader epoch."""


def diverged(policy: ReinstatePolicy, *, epoch: int = 2) -> MemoryWorld:
    """Both partitions have four batches of one history; the first copy continues alone under epoch
    3, the source under epoch 7. The second copy alone has records.
    """
    world = MemoryWorld()
    world.record.reinstate_policy, world.record.epoch = policy.value, epoch
    world.record.leader_epoch_floor = PROMOTED_FROM
    for site in (world.source, world.target):
        site.add("orders", 2)
        site.produce("orders", 0, 4, epoch=2)
    world.target.produce("orders", 0, 3, epoch=3)
    world.source.produce("orders", 0, 5, epoch=7)
    world.target.produce("orders", 1, 2, epoch=3)
    return world


def tails(world: MemoryWorld) -> dict[TopicPartition, set[bytes]]:
    """The records that only the copies have."""
    return {FIRST: set(world.target.logs[FIRST].batches[4:]), SECOND: set(world.target.logs[SECOND].batches)}


def quarantined(world: MemoryWorld) -> dict[TopicPartition, set[bytes]]:
    return {key: set(kept.values()) for (key, _), kept in world.target.quarantined.items()}


async def faulted(mirror: Mirror) -> None:
    await eventually(lambda: bool(states(mirror)) and states(mirror) == FAULTED)


def reasons(mirror: Mirror) -> dict[TopicPartition, str]:
    return {key: row.facts.reason for key, row in mirror.board.rows()}


def states_in(logged: Sequence[MutableMapping[str, Any]]) -> set[str]:
    """The states that partitions came into."""
    states = {line["state"] for line in logged if "state" in line}
    assert states
    return states


async def test_an_automatic_link_reinstates_a_returning_site_by_itself() -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    own = tails(world)
    with capture_logs() as logged:
        async with mirroring(world) as mirror:
            await eventually(world.is_equal)
            await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
    assert quarantined(world) == own
    assert "FAULTED" not in states_in(logged)
    assert not world.target.requests, "no copy is deleted"


async def test_records_that_are_younger_than_the_promotion_wait_for_a_person() -> None:
    """The active site has lost some of them."""
    world = diverged(ReinstatePolicy.AUTOMATIC)
    world.record.leader_epoch_floor = 3
    before = world.target.logs[FIRST].data
    async with mirroring(world) as mirror:
        await faulted(mirror)
        assert "antipode links reinstate" in reasons(mirror)[FIRST]
        assert world.target.logs[FIRST].data == before
    assert not quarantined(world)


@pytest.mark.parametrize(
    ("policy", "epoch"), [(ReinstatePolicy.MANUAL, 2), (ReinstatePolicy.AUTOMATIC, 1)], ids=["manual", "never turned"]
)
async def test_else_a_person_reinstates_it(policy: ReinstatePolicy, epoch: int) -> None:
    world = diverged(policy, epoch=epoch)
    own = tails(world)
    async with mirroring(world) as mirror:
        await faulted(mirror)
        assert all("antipode links reinstate puts the copy's own records" in one for one in reasons(mirror).values())
        planned = await mirror.reinstatements.reinstate([], is_dry_run=True)
        assert [(one.key, one.outcome, one.from_offset, one.end_offset) for one in planned] == [
            (FIRST, ReinstateOutcome.PLANNED, 12, 21),
            (SECOND, ReinstateOutcome.PLANNED, 0, 6),
        ]
        assert not world.target.quarantined
        done = await mirror.reinstatements.reinstate(["orders"], is_dry_run=False)
        assert [(one.outcome, one.from_offset, one.entry) for one in done] == [
            (ReinstateOutcome.REINSTATED, 12, "entry of orders-0"),
            (ReinstateOutcome.REINSTATED, 0, "entry of orders-1"),
        ]
        assert quarantined(world) == own
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
        (again, _) = await mirror.reinstatements.reinstate([], is_dry_run=False)
        assert again.outcome is ReinstateOutcome.NOTHING


def groups_of_the_lost_site(world: MemoryWorld) -> None:
    """Site b has offsets in its own tail, in the common history, and of a group that the link does
    not carry; the active site has none of them.
    """
    world.record.group_blacklist.append("local")
    world.target.group_offsets = {
        "late": {FIRST: GroupOffset(20, 3, "mark"), SECOND: GroupOffset(4, 3)},
        "early": {FIRST: GroupOffset(12, 2)},
        "local": {FIRST: GroupOffset(20, 3)},
    }


async def test_groups_that_only_the_returning_site_knows_move_back_to_the_common_history() -> None:
    """M3: else they would skip the active site's records when this site is active again."""
    world = diverged(ReinstatePolicy.AUTOMATIC)
    groups_of_the_lost_site(world)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
    assert world.target.group_offsets == {
        "late": {FIRST: GroupOffset(12, -1, "mark"), SECOND: GroupOffset(0)},
        "early": {FIRST: GroupOffset(12, 2)},
        "local": {FIRST: GroupOffset(20, 3)},
    }


@pytest.mark.parametrize("obstacle", ["a moving coordinator", "a refused commit"])
async def test_no_copy_is_truncated_before_its_groups_have_moved(obstacle: str) -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    groups_of_the_lost_site(world)
    own = tails(world)
    if obstacle == "a moving coordinator":
        world.target.moving_groups.add("late")
    else:
        world.target.commit_errors["late"] = ErrorCode.not_coordinator
    async with mirroring(world) as mirror:
        await eventually(lambda: "the copy cannot be reinstated now" in reasons(mirror).get(FIRST, ""))
        assert tails(world) == own
        world.target.moving_groups.clear()
        world.target.commit_errors.clear()
        await eventually(world.is_equal)
    assert quarantined(world) == own


async def test_a_group_with_members_at_the_returning_site_does_not_hold_the_copy_up() -> None:
    """On a link that is not routed, groups work at both sites."""
    world = diverged(ReinstatePolicy.AUTOMATIC)
    groups_of_the_lost_site(world)
    world.target.commit_errors["late"] = ErrorCode.non_empty_group
    async with mirroring(world):
        await eventually(world.is_equal)
    assert world.target.group_offsets["late"][FIRST] == GroupOffset(20, 3, "mark")


class Killed(Exception):
    """The mirror ends here."""


@pytest.mark.parametrize("step", ["before_keep", "before_act"])
@pytest.mark.parametrize("error", [Killed(), Unreachable("site b is down")], ids=["killed", "unreachable"])
async def test_an_interruption_at_any_step_leaves_each_record_in_the_copy_or_in_quarantine(
    step: str, error: Exception
) -> None:
    world = diverged(ReinstatePolicy.MANUAL)
    own = tails(world)

    def interrupt() -> None:
        raise error

    async with mirroring(world) as mirror:
        await faulted(mirror)
        setattr(world.target, step, interrupt)
        with pytest.raises(type(error)):
            await mirror.reinstatements.reinstate([], is_dry_run=False)
        for key, records in own.items():
            assert records <= set(world.target.logs[key].batches) | quarantined(world).get(key, set())
    setattr(world.target, step, lambda: None)
    world.record.reinstate_policy = ReinstatePolicy.AUTOMATIC.value
    async with mirroring(world):
        await eventually(world.is_equal)
    assert quarantined(world) == own


async def test_an_automatic_reinstatement_that_fails_is_tried_again() -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    failures = [Unreachable("site b is down"), RuntimeError("a mistake")]

    def fail_twice() -> None:
        if failures:
            raise failures.pop()

    world.target.before_keep = fail_twice
    with capture_logs() as logged:
        async with mirroring(world):
            await eventually(world.is_equal)
    assert not failures
    assert "FAULTED" not in states_in(logged), logged


async def test_where_the_quarantine_refuses_the_copy_stays() -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    before = world.target.logs[FIRST].data
    world.target.quarantine_refusal = "policy_violation: the quarantine of orders-0 has room for 5 bytes"
    async with mirroring(world) as mirror:
        await faulted(mirror)
        assert "has room for 5 bytes" in reasons(mirror)[FIRST]
        assert world.target.logs[FIRST].data == before


class Differing:
    """A Verifier that finds other bytes."""

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        return Comparison(finding=f"{key} differs below {mirrored_end}, of {last_offsets}")


async def test_a_common_epoch_with_other_bytes_is_no_common_history() -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    before = world.target.logs[FIRST].data
    world.verifier = Differing()
    async with mirroring(world) as mirror:
        await eventually(lambda: "differs below 12" in reasons(mirror).get(FIRST, ""))
        assert "antipode links reset copies the topic again" in reasons(mirror)[FIRST]
        assert world.target.logs[FIRST].data == before
        assert FIRST not in quarantined(world)


class Unread:
    """A Verifier that cannot read the logs at first."""

    def __init__(self) -> None:
        self.failures = 2

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        if self.failures:
            self.failures -= 1
            return Comparison(is_known=False, is_unread=True, finding=f"{key}: OFFSET_OUT_OF_RANGE")
        return Comparison(to_offset=mirrored_end)


async def test_batches_that_could_not_be_read_are_compared_again() -> None:
    """Retention may have moved the start of a log, or a broker has just restarted."""
    world = diverged(ReinstatePolicy.AUTOMATIC)
    own = tails(world)
    world.verifier = verifier = Unread()
    with capture_logs() as logged:
        async with mirroring(world):
            await eventually(world.is_equal)
    assert not verifier.failures
    assert quarantined(world) == own
    assert "FAULTED" not in states_in(logged), logged


async def test_a_source_that_begins_above_the_common_history_needs_a_new_copy() -> None:
    world = diverged(ReinstatePolicy.AUTOMATIC)
    log = world.source.logs[FIRST]
    log.start, log.batches = 15, log.batches[5:]
    async with mirroring(world) as mirror:
        await eventually(lambda: "the source starts at 15; antipode links reset" in reasons(mirror).get(FIRST, ""))
        assert FIRST not in quarantined(world)


async def test_a_link_that_has_turned_truncates_nothing() -> None:
    world = diverged(ReinstatePolicy.MANUAL)
    async with mirroring(world) as mirror:
        await faulted(mirror)
        world.record.epoch, world.record.active_site = 3, "b"
        await eventually(lambda: states(mirror) == {FlowState.PROMOTED})
        found = await mirror.reinstatements.reinstate([], is_dry_run=False)
        assert {one.outcome for one in found} == {ReinstateOutcome.NOTHING}
        assert not world.target.quarantined


async def test_a_copy_without_records_of_its_own_is_not_said_to_be_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """`antipode repair` has truncated it between the flow's comparison and its request."""
    world = diverged(ReinstatePolicy.AUTOMATIC)
    found: list[str] = []
    submit = FlowBoard.submit

    def repaired(_: Reinstatements, key: TopicPartition) -> bool:
        log = world.target.logs[key]
        log.batches = log.batches[: 4 if key == FIRST else 0]
        return True

    def noted(board: FlowBoard, key: TopicPartition, command: Command) -> Decision:
        decision = submit(board, key, command)
        if isinstance(command, CopyReinstated):
            found.append(decision.reason)
        return decision

    monkeypatch.setattr(Reinstatements, "_is_of_former_epoch", repaired)
    monkeypatch.setattr(FlowBoard, "submit", noted)
    async with mirroring(world):
        await eventually(world.is_equal)
    assert not world.target.quarantined
    assert {"has nothing alone" in reason for reason in found} == {True}, found
