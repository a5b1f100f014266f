"""Members of both protocols continue at another site's coordinator without a rebalance."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.groups.core import group_handover
from broker.groups.core.group_messages import (
    CodeReply,
    GroupStored,
    HeartbeatReply,
    TakeMembers,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_states import Group, GroupState
from tests.support.memory.group_script import GroupScript

TOPICS = "topics t=4"


def stable_classic(scene: GroupScript) -> list[str]:
    """A group of two members in generation 1; their ids."""
    first, _ = scene.new_member(client="a")
    second, _ = scene.new_member(client="b")
    scene.advance(3000)
    scene.advance(3000)
    scene.answer(f"sync g member={first} generation=1 assign={first}:x,{second}:y")
    scene.answer(f"sync g member={second} generation=1")
    group = scene.groups.get("g")
    assert group is not None
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    return [first, second]


def test_classic_members_keep_generation_assignment_and_offsets() -> None:
    scene = GroupScript()
    first, second = stable_classic(scene)
    scene.answer(f"commit g t-0=5 member={first} generation=1")
    before = scene.groups.durable_state()
    scene.move()
    assert scene.groups.durable_state() == before
    for member in (first, second):
        scene.answer(f"heartbeat g member={member} generation=1")
        assert scene.replies[max(scene.replies)] == CodeReply()
        scene.answer(f"commit g t-0=7 member={member} generation=1")
    assert "7" in scene.answer("fetch g")
    assert scene.replayed().durable_state() == scene.groups.durable_state()


def test_a_member_that_does_not_come_loses_its_place_after_its_session_timeout() -> None:
    scene = GroupScript()
    first, second = stable_classic(scene)
    scene.move()
    assert {key.member_id for key in scene.timers if key.kind is TimerKind.SESSION} == {first, second}
    scene.advance(5_000)
    scene.answer(f"heartbeat g member={first} generation=1")
    scene.advance(6_000)
    group = scene.groups.get("g")
    assert group is not None
    assert set(group.members) == {first}


def test_a_group_in_a_rebalance_is_left_behind_with_its_offsets() -> None:
    scene = GroupScript()
    scene.answer("commit g t-0=5")
    scene.new_member(client="a")
    scene.move()
    group = scene.groups.get("g")
    assert group == Group(group_id="g")
    assert "t-0" in scene.answer("fetch g")


def test_members_of_the_newer_protocol_keep_epochs_and_partitions() -> None:
    scene = GroupScript()
    scene.answer(TOPICS)
    for member in "ab":
        scene.answer(f"beat g member={member} epoch=0 topics=t owns=none")
    for _ in range(3):
        for member in "ab":
            group = scene.groups.consumers("g")
            assert group is not None
            reached = group.reached_by(member)
            owned = ",".join(f"t-{index}" for _, index in sorted(reached.assigned)) or "none"
            scene.answer(f"beat g member={member} epoch={reached.epoch} owns={owned}")
    before = scene.groups.consumers("g")
    assert before is not None
    assert before.state == "Stable"
    scene.move()
    after = scene.groups.consumers("g")
    assert after == before
    assert TimerKey(TimerKind.CONSUMER_SESSION, "g", "a") in scene.timers
    scene.answer(f"beat g member=a epoch={before.reached_by('a').epoch}")
    reply = scene.replies[max(scene.replies)]
    assert isinstance(reply, HeartbeatReply)
    assert reply.error is ErrorCode.none


def test_a_group_that_has_members_here_keeps_them() -> None:
    scene, other = GroupScript(), GroupScript()
    stable_classic(scene)
    other.advance(1)
    stable_classic(other)
    group = other.groups.get("g")
    assert group is not None
    before = scene.groups.durable_state()
    reply = scene.ask(TakeMembers(group_id="g", records=group_handover.member_records(group, None)))
    assert reply == CodeReply(error=ErrorCode.non_empty_group)
    assert scene.groups.durable_state() == before


@pytest.mark.parametrize("records", [(), (GroupStored(group=Group(group_id="other")),)])
def test_records_that_are_not_of_the_group_are_refused(records: tuple[GroupStored, ...]) -> None:
    scene = GroupScript()
    assert scene.ask(TakeMembers(group_id="g", records=records)) == CodeReply(error=ErrorCode.invalid_record)
    assert scene.log == []


def test_the_same_members_once_more_change_nothing() -> None:
    """A call that was not answered in time is made again."""
    scene = GroupScript()
    stable_classic(scene)
    scene.move()
    group = scene.groups.get("g")
    assert group is not None
    before = len(scene.log)
    assert scene.ask(TakeMembers(group_id="g", records=group_handover.member_records(group, None))) == CodeReply()
    assert len(scene.log) == before
