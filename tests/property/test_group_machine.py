"""The group machine under random clients, crashes and passing time: it is sound after each record,
and equal to a replay of its log.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from broker.groups.core.group_machine import Groups
from broker.groups.core.group_messages import (
    Command,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    EvictMembers,
    ExpireOffsets,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    MirrorOffsets,
    PartitionsReply,
    SyncGroup,
    SyncReply,
)
from broker.groups.core.group_offsets import Offsets
from broker.groups.core.group_states import Group, GroupState
from tests.support.examples import examples
from tests.support.memory.group_scene import GroupScene
from wire.protocol.ids import TopicPartition

GROUPS = st.sampled_from(["g", "g", "g", "h"])
PARTITIONS = st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)])


def durable(groups: Groups, only: frozenset[str]) -> tuple[Mapping[str, Group], Mapping[str, Offsets]]:
    """The state that must survive: groups between rebalances that have a generation or offsets, and
    all offsets.
    """
    found, offsets = groups.durable_state()
    kept = {name: group for name, group in found.items() if name in only and (group.generation or name in offsets)}
    return {name: group for name, group in kept.items() if not group.is_simple}, offsets


class GroupHistory(RuleBasedStateMachine):
    """Clients that keep the coordinator's answers, like real ones, and some that lie."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = GroupScene()
        self.generations: dict[str, int] = {}

    def a_member(self, data: st.DataObject, group: str) -> str:
        known = self.scene.groups.get(group)
        ids: list[str] = sorted(known.members) + sorted(known.pending) if known else []
        return data.draw(st.sampled_from([*ids, "unknown"]))

    def generation_of(self, group: str) -> int:
        known = self.scene.groups.get(group)
        return known.generation if known else 0

    @rule(
        data=st.data(),
        group=GROUPS,
        instance=st.sampled_from([None, None, "one", "two"]),
        protocols=st.sampled_from(["range", "range,sticky", "sticky,range", "sticky"]),
        version=st.sampled_from([3, 8, 9]),
        is_new=st.booleans(),
    )
    def join(
        self, data: st.DataObject, group: str, instance: str | None, protocols: str, version: int, is_new: bool
    ) -> None:
        member = "" if is_new else self.a_member(data, group)
        known = self.scene.groups.get(group)
        if known is not None and member in known.members:
            instance = known.members[member].group_instance_id
        self.scene.join(group, member=member, instance=instance, protocols=protocols, version=version)

    @rule(group=GROUPS, client=st.sampled_from("abc"))
    def newcomer_joins(self, group: str, client: str) -> None:
        self.scene.join(group, client=client, version=3)

    @rule(group=GROUPS)
    def everybody_joins_again(self, group: str) -> None:
        known = self.scene.groups.get(group)
        for member in tuple(known.members.values()) if known else ():
            if member.join_token is None:
                names = ",".join(offered.name for offered in member.protocols)
                self.scene.join(group, member=member.member_id, instance=member.group_instance_id, protocols=names)

    @rule(group=GROUPS)
    def everybody_syncs(self, group: str) -> None:
        known = self.scene.groups.get(group)
        for member_id in sorted(known.members) if known else ():
            self.sync_as(group, member_id, self.generation_of(group))

    @rule(group=GROUPS, clients=st.lists(st.sampled_from("abc"), min_size=1, max_size=2), is_complete=st.booleans())
    def a_generation_forms(self, group: str, clients: list[str], is_complete: bool) -> None:
        for client in clients:
            self.newcomer_joins(group, client)
        self.everybody_joins_again(group)
        self.scene.advance(6000)
        known = self.scene.groups.get(group)
        assert known is not None
        self.sync_as(group, max(known.members), known.generation)
        if is_complete:
            self.everybody_syncs(group)

    @rule(elapsed_ms=st.sampled_from([3000, 9000]))
    def a_little_time_passes(self, elapsed_ms: int) -> None:
        self.scene.advance(elapsed_ms)

    @rule(data=st.data(), group=GROUPS, is_late=st.booleans())
    def sync(self, data: st.DataObject, group: str, is_late: bool) -> None:
        member = self.a_member(data, group)
        self.sync_as(group, member, self.generation_of(group) - is_late)

    def sync_as(self, group: str, member: str, generation: int) -> None:
        known = self.scene.groups.get(group)
        given = {name: f"{name}:{generation}".encode() for name in known.members} if known else {}
        reply = self.scene.ask(
            SyncGroup(
                group_id=group,
                member_id=member,
                group_instance_id=None,
                generation=generation,
                protocol_type=None,
                protocol=None,
                assignments=given,
            )
        )
        if isinstance(reply, SyncReply) and reply.error is ErrorCode.none:
            assert reply.assignment in (b"", f"{member}:{generation}".encode()) or self.has_static(group)

    def has_static(self, group: str) -> bool:
        known = self.scene.groups.get(group)
        return known is not None and any(member.is_static for member in known.members.values())

    @rule(data=st.data(), group=GROUPS)
    def heartbeat(self, data: st.DataObject, group: str) -> None:
        member = self.a_member(data, group)
        generation = self.generation_of(group)
        self.scene.ask(Heartbeat(group_id=group, member_id=member, group_instance_id=None, generation=generation))

    @rule(data=st.data(), group=GROUPS)
    def leave(self, data: st.DataObject, group: str) -> None:
        leaving = tuple(LeavingMember(self.a_member(data, group), None) for _ in range(2))
        self.scene.ask(LeaveGroup(group_id=group, members=leaving))

    @rule(data=st.data(), group=GROUPS, partition=PARTITIONS, offset=st.integers(0, 99), as_member=st.booleans())
    def commit(self, data: st.DataObject, group: str, partition: TopicPartition, offset: int, as_member: bool) -> None:
        member = self.a_member(data, group) if as_member else ""
        generation = self.generation_of(group) if as_member else -1
        command = CommitOffsets(
            group_id=group,
            member_id=member,
            generation=generation,
            offsets={partition: CommittedOffset(offset, 1, "m")},
        )
        reply = self.scene.ask(command)
        assert isinstance(reply, PartitionsReply)
        if reply.error is ErrorCode.none:
            found = self.scene.groups.offset(group, partition)
            assert found is not None
            assert found.offset == offset

    @rule(group=GROUPS, partition=PARTITIONS, offset=st.integers(0, 99))
    def mirror(self, group: str, partition: TopicPartition, offset: int) -> None:
        known = self.scene.groups.get(group)
        has_members = known is not None and bool(known.members)
        before = self.scene.groups.offset(group, partition)
        self.scene.ask(
            MirrorOffsets(group_id=group, offsets={partition: CommittedOffset(offset, -1, "")}, carried_by="l@1")
        )
        if has_members:
            assert self.scene.groups.offset(group, partition) == before

    @rule(elapsed_ms=st.sampled_from([100, 3000, 10_000, 70_000, 400_000]))
    def time_passes(self, elapsed_ms: int) -> None:
        self.scene.advance(elapsed_ms)

    @rule(group=GROUPS, command=st.sampled_from([ExpireOffsets, EvictMembers, DeleteGroup]))
    def somebody_tidies_up(self, group: str, command: type[Command]) -> None:
        known = self.scene.groups.get(group)
        has_members = known is not None and bool(known.members)
        self.scene.ask(command(group_id=group))
        after = self.scene.groups.get(group)
        if command is EvictMembers:
            assert after is None or not after.members
        elif has_members:
            assert after == known

    @rule()
    def the_coordinator_moves(self) -> None:
        self.scene.restart()

    @invariant()
    def the_log_replays_to_the_state(self) -> None:
        settled = frozenset(
            group.group_id for group in self.scene.groups if group.state in (GroupState.EMPTY, GroupState.STABLE)
        )
        assert durable(self.scene.replayed(), settled) == durable(self.scene.groups, settled)

    @invariant()
    def whoever_waits_has_a_timer_that_ends_the_wait(self) -> None:
        for group in self.scene.groups:
            if any(member.is_waiting for member in group.members.values()):
                kinds = {key.kind.value for key in self.scene.timers if key.group_id == group.group_id}
                assert kinds & {"join", "sync", "session"}, group

    def teardown(self) -> None:
        """In the end every group is stable, and no request waits."""
        for _ in range(4):
            self.scene.advance(400_000)
        for group in self.scene.groups:
            assert group.state is GroupState.EMPTY, group
            assert not group.pending
        assert not self.scene.timers
        assert not self.scene.waiting


GroupHistory.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestGroupHistory = GroupHistory.TestCase
