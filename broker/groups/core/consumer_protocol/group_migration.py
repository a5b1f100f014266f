"""A group changes its protocol while its members work (KIP-848). Pure.

The first member of the newer protocol turns a classic group into a KIP-848 group. When the last of
these members leaves, the group becomes a classic group again. In an upgrade no partition moves:
each member keeps its classic assignment, with the classic generation as its member epoch, and is
reconciled from there. Members that wait in a join or a sync get a retriable error, and the
coordinator believes what they report as owned. In a downgrade, the classic group continues with the
group's epoch as its generation, and a rebalance begins at once. The group is stored without a
leader, so that a coordinator that replays the log after a crash knows that the rebalance has yet to
begin (`group_states.must_rebalance`).
"""

from __future__ import annotations

from collections.abc import Collection

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.groups.core import group_rebalance as rebalance
from broker.groups.core.consumer_protocol import consumer_groups
from broker.groups.core.consumer_protocol.consumer_group_states import (
    ConsumerFact,
    ConsumerGroup,
    MemberState,
    Reached,
    TopicShapes,
    partitions_of,
)
from broker.groups.core.consumer_protocol.consumer_groups import put_reached
from broker.groups.core.consumer_protocol.consumer_turn import ConsumerTurn
from broker.groups.core.consumer_protocol.server_assignors import Owned, TopicIdPartition
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    Decision,
    Effect,
    GroupStored,
    JoinReply,
    StartTimer,
    SyncReply,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_states import AssignmentProtocol, Group, GroupState, Member
from broker.groups.core.group_turn import GroupLimits, Turn
from wire.batches.consumer_group_records import (
    GROUP_KIND,
    MEMBER_KIND,
    TARGET_EPOCH_KIND,
    TARGET_KIND,
    ClassicMember,
    GroupEpoch,
    MemberMetadata,
    TargetAssignment,
    TargetEpoch,
)
from wire.batches.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    PartitionsByTopic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from wire.protocol.byte_reader import Malformed

MEMBER_TIMERS = (TimerKind.CONSUMER_SESSION, TimerKind.CONSUMER_REBALANCE, TimerKind.REJOIN, TimerKind.FIRST_SYNC)


class NotConvertible(Exception):
    """The group cannot change its protocol; the text says why."""


# --- upwards


def upgraded(classic: Group, topics: TopicShapes) -> ConsumerTurn:
    """The classic group as a KIP-848 group, with the records that create it. NotConvertible."""
    if classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise NotConvertible(f"{classic.group_id} is of type {classic.protocol_type}, which is not for consumers")
    turn = ConsumerTurn(ConsumerGroup(classic.group_id), topics, 0)
    turn.put(GROUP_KIND, GroupEpoch(classic.generation))
    taken: set[TopicIdPartition] = set()
    for member in classic.members.values():
        try:
            owned = _owned_by(classic, member, topics) - taken
            turn.put(MEMBER_KIND, _metadata(classic, member), member.member_id)
        except Malformed as error:
            raise NotConvertible(f"{member.member_id} has no valid consumer subscription: {error}") from error
        taken |= owned
        turn.put(TARGET_KIND, TargetAssignment(partitions_of(owned)), member.member_id)
        reached = Reached(classic.generation, classic.generation, MemberState.STABLE, owned)
        put_reached(turn, member.member_id, reached)
    turn.put(TARGET_EPOCH_KIND, TargetEpoch(classic.generation))
    return turn


def leaving_classic(classic: Group) -> list[Effect]:
    """Waiting members get a retriable error; the timers of the classic group end, and members'
    sessions continue.
    """
    group_id = classic.group_id
    effects: list[Effect] = [
        *(CancelTimer(key=TimerKey(kind, group_id)) for kind in (TimerKind.JOIN, TimerKind.SYNC)),
        *(CancelTimer(key=TimerKey(TimerKind.PENDING, group_id, name)) for name in sorted(classic.pending)),
    ]
    for member in classic.members.values():
        key = TimerKey(TimerKind.SESSION, group_id, member.member_id)
        session = StartTimer(key=key._replace(kind=TimerKind.CONSUMER_SESSION), delay_ms=member.session_timeout_ms)
        effects += [CancelTimer(key=key), session]
        error = ErrorCode.rebalance_in_progress
        if member.join_token is not None:
            effects.append(Answer(token=member.join_token, reply=JoinReply(error=error, member_id=member.member_id)))
        if member.sync_token is not None:
            effects.append(Answer(token=member.sync_token, reply=SyncReply(error=error)))
    return effects


def _preferred(group: Group, member: Member) -> bytes:
    """The member's metadata under the group's protocol, or under the member's preferred
    protocol.
    """
    return member.metadata_for(group.protocol) or member.protocols[0].metadata


def _owned_by(group: Group, member: Member, topics: TopicShapes) -> Owned:
    """The partitions that the generation assigned to the member. A member that is joining, or has
    no assignment yet, owns the partitions that it reported itself.
    """
    if member.join_token is None and member.assignment:
        return owned_ids(decode_assignment(member.assignment), topics)
    return owned_ids(decode_subscription(_preferred(group, member)).owned, topics)


def owned_ids(partitions: PartitionsByTopic, topics: TopicShapes) -> Owned:
    """Partitions by their topics' ids, without those of deleted topics."""
    return frozenset(
        TopicIdPartition(topics[name][0], index)
        for name, indexes in partitions.items()
        if name in topics
        for index in indexes
    )


def _metadata(group: Group, member: Member) -> MemberMetadata:
    subscription = decode_subscription(_preferred(group, member))
    return MemberMetadata(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicMember(
            member.session_timeout_ms, tuple((offered.name, offered.metadata) for offered in member.protocols)
        ),
    )


# --- downwards


def after_removal(
    known: ConsumerGroup, gone: Collection[str], reason: str, limits: GroupLimits, *, now_ms: int, topics: TopicShapes
) -> Decision:
    """These members are out. The group after members left: it becomes a classic group if only
    classic members remain and a member of the newer protocol left.
    """
    left = {member_id: member for member_id, member in known.members.items() if member_id not in gone}
    had_newer = any(known.members[member_id].classic is None for member_id in gone)
    if limits.may_downgrade and had_newer and left and all(member.classic is not None for member in left.values()):
        return _downgraded(known, left, reason, limits, now_ms=now_ms, topics=topics)
    facts: list[ConsumerFact] = []
    group = known
    for member_id in gone:
        turn = consumer_groups.remove_member(group, member_id, reason)
        facts += turn.facts
        group = turn.group
    ended = tuple(_ended(known.group_id, gone))
    return Decision(records=tuple(facts), effects=ended, reason=reason)


def _ended(group_id: str, members: Collection[str]) -> list[Effect]:
    return [CancelTimer(key=TimerKey(kind, group_id, name)) for name in members for kind in MEMBER_TIMERS]


def _downgraded(
    known: ConsumerGroup,
    left: dict[str, MemberMetadata],
    reason: str,
    limits: GroupLimits,
    *,
    now_ms: int,
    topics: TopicShapes,
) -> Decision:
    members = {
        member_id: _classic_member(member_id, metadata, known.reached_by(member_id), topics)
        for member_id, metadata in left.items()
    }
    group = Group(
        group_id=known.group_id,
        state=GroupState.STABLE,
        state_since_ms=now_ms,
        generation=known.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        members=members,
    )
    group = replace(group, protocol=group.vote())
    turn = Turn(replace(group, leader=next(iter(members))), now_ms=now_ms, token=0, limits=limits)
    for member in members.values():
        turn.restart_session(member)
    rebalance.begin(turn, f"{reason}; only members of the classic protocol remain")
    begun = turn.decision()
    return Decision(
        records=(*consumer_groups.removal(known), GroupStored(group=group), *begun.records),
        effects=(*_ended(known.group_id, known.members), *begun.effects),
        reason=begun.reason,
    )


def assignment_of(version: int, owned: Owned, topics: TopicShapes) -> bytes:
    """A member's assignment in the encoding of the classic protocol."""
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    named = {names[topic_id]: indexes for topic_id, indexes in partitions_of(owned).items() if topic_id in names}
    return encode_assignment(version, named)


def _classic_member(member_id: str, metadata: MemberMetadata, reached: Reached, topics: TopicShapes) -> Member:
    assert metadata.classic is not None
    version = decode_subscription(metadata.classic.protocols[0][1]).version
    return Member(
        member_id=member_id,
        group_instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        session_timeout_ms=metadata.classic.session_timeout_ms,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        protocols=tuple(AssignmentProtocol(name, offered) for name, offered in metadata.classic.protocols),
        assignment=assignment_of(version, reached.held, topics),
    )
