"""Members of the classic protocol inside a KIP-848 group: their requests are treated as heartbeats.
Pure.

This covers JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Such a member never leads and assigns
nothing: it receives the coordinator's target assignment in the consumer protocol's format. Its
generation is its member epoch. A JoinGroup states what the member owns, so each join takes it one
step further: first it keeps the partitions that it may keep, then it receives the partitions that
other members have released. A heartbeat asks it to rejoin when there is a next step. Called by
`core/group_machine.py`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.groups.core.consumer_protocol.consumer_group_states import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroup,
    MemberState,
    copy_of,
    partitions_of,
)
from broker.groups.core.consumer_protocol.consumer_groups import MemberHeartbeat, forget_member, lead_on, put_reached
from broker.groups.core.consumer_protocol.consumer_turn import ConsumerTurn
from broker.groups.core.consumer_protocol.group_migration import MEMBER_TIMERS, after_removal, assignment_of, owned_ids
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    CodeReply,
    Decision,
    Effect,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    Reply,
    StartTimer,
    SyncGroup,
    SyncReply,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_turn import GroupLimits
from wire.batches.consumer_group_records import (
    MEMBER_KIND,
    TARGET_KIND,
    ClassicMember,
    MemberMetadata,
    TargetAssignment,
)
from wire.batches.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
)
from wire.protocol.byte_reader import Malformed

MembershipCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup


def decide(
    known: ConsumerGroup, command: MembershipCommand, limits: GroupLimits, *, token: int, now_ms: int
) -> Decision:
    """Decide a classic request to a group that has members."""
    match command:
        case JoinGroup():
            return _join(known, command, limits, token=token, now_ms=now_ms)
        case SyncGroup():
            return _sync(known, command, token)
        case Heartbeat():
            return _heartbeat(known, command, token)
        case LeaveGroup():
            return _leave(known, command, limits, token=token, now_ms=now_ms)


def _answer(token: int, reply: Reply, *effects: Effect) -> Decision:
    return Decision(effects=(*effects, Answer(token=token, reply=reply)))


# --- join


def _join(known: ConsumerGroup, command: JoinGroup, limits: GroupLimits, *, token: int, now_ms: int) -> Decision:
    subscription = _subscription(command)
    error = ErrorCode.inconsistent_group_protocol
    if subscription is not None:
        error = _join_error(known, command, limits)
    if subscription is None or error is not ErrorCode.none:
        return _answer(token, JoinReply(error=error, member_id=command.member_id))
    if not command.member_id and command.group_instance_id is None and command.requires_known_member:
        return _answer(token, JoinReply(error=ErrorCode.member_id_required, member_id=command.fresh_member_id))
    former_id = known.static_member(command.group_instance_id)
    if former_id is not None and known.members[former_id].classic is None:
        # its slot is free, and the other members may form a classic group then, which the new
        # member joins
        removed = after_removal(
            known, {former_id}, f"a classic member replaces {former_id}", limits, now_ms=now_ms, topics=command.topics
        )
        reply = JoinReply(error=ErrorCode.rebalance_in_progress, member_id=command.member_id)
        return replace(removed, effects=(*removed.effects, Answer(token=token, reply=reply)))
    member_id = command.member_id or command.fresh_member_id
    turn = ConsumerTurn(copy_of(known), command.topics, limits.consumer_size_max, limits.consumer_assignors)
    former = known.members.get(member_id)
    if former_id is not None and former_id != member_id:
        former = _take_place(turn, former_id, member_id)
    reached = lead_on(turn, _as_heartbeat(turn, command, member_id, subscription), former)
    reply = JoinReply(
        member_id=member_id,
        generation=reached.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=command.protocols[0].name,
    )
    key = TimerKey(TimerKind.CONSUMER_SESSION, known.group_id, member_id)
    effects: list[Effect] = [
        StartTimer(key=key, delay_ms=command.session_timeout_ms),
        CancelTimer(key=key._replace(kind=TimerKind.REJOIN)),
        CancelTimer(key=key._replace(kind=TimerKind.CONSUMER_REBALANCE)),
        StartTimer(key=key._replace(kind=TimerKind.FIRST_SYNC), delay_ms=command.rebalance_timeout_ms),
        Answer(token=token, reply=reply),
    ]
    if former_id is not None and former_id != member_id:
        former_timers = [CancelTimer(key=TimerKey(kind, known.group_id, former_id)) for kind in MEMBER_TIMERS]
        effects = [*former_timers, *effects]
    return Decision(records=tuple(turn.facts), effects=tuple(effects), reason=turn.reason)


def _subscription(command: JoinGroup) -> Subscription | None:
    """The subscription under the protocol that the member prefers; None when it is unreadable."""
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not command.protocols:
        return None
    try:
        return decode_subscription(command.protocols[0].metadata)
    except Malformed:
        return None


def _join_error(known: ConsumerGroup, command: JoinGroup, limits: GroupLimits) -> ErrorCode:
    if not limits.session_timeout_ms_min <= command.session_timeout_ms <= limits.session_timeout_ms_max:
        return ErrorCode.invalid_session_timeout
    holder_id = known.static_member(command.group_instance_id)
    if command.member_id and command.group_instance_id is not None and holder_id != command.member_id:
        return ErrorCode.unknown_member_id if holder_id is None else ErrorCode.fenced_instance_id
    known_id = command.member_id or holder_id
    former = known.members.get(known_id) if known_id else None
    if former is not None and former.classic is None:
        is_paused = known.reached_by(known_id or "").epoch == LEAVING_STATIC_EPOCH
        return ErrorCode.none if is_paused else ErrorCode.unreleased_instance_id
    if former is None and len(known.members) >= limits.consumer_size_max:
        return ErrorCode.group_max_size_reached
    others: list[set[str]] = [
        {name for name, _ in member.classic.protocols}
        for name, member in known.members.items()
        if member.classic is not None and name != known_id
    ]
    offered = {offer.name for offer in command.protocols}
    is_supported = not others or not offered.isdisjoint(set[str].intersection(*others))
    return ErrorCode.none if is_supported else ErrorCode.inconsistent_group_protocol


def _take_place(turn: ConsumerTurn, former_id: str, member_id: str) -> MemberMetadata:
    """A static member returned under a new id: the partitions that it owned, and its target, move
    to the new id.
    """
    group = turn.group
    metadata, reached = group.members[former_id], group.reached_by(former_id)
    target = group.targets.get(former_id, frozenset())
    forget_member(turn, former_id)
    turn.put(MEMBER_KIND, metadata, member_id)
    turn.put(TARGET_KIND, TargetAssignment(partitions_of(target)), member_id)
    put_reached(turn, member_id, reached)
    turn.reason = f"{metadata.instance_id} is back as {member_id}"
    return metadata


def _as_heartbeat(
    turn: ConsumerTurn, command: JoinGroup, member_id: str, subscription: Subscription
) -> MemberHeartbeat:
    is_member = member_id in turn.group.members
    return MemberHeartbeat(
        member_id=member_id,
        member_epoch=turn.group.reached_by(member_id).epoch if is_member else JOINING_EPOCH,
        instance_id=command.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        topic_names=subscription.topics,
        topic_regex=None,
        server_assignor=None,
        owned=owned_ids(subscription.owned, turn.topics),
        classic=ClassicMember(
            command.session_timeout_ms, tuple((offer.name, offer.metadata) for offer in command.protocols)
        ),
    )


# --- sync, heartbeat


def _member_error(
    known: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ErrorCode, ClassicMember | None]:
    holder_id = known.static_member(instance_id)
    if instance_id is not None and holder_id is not None and holder_id != member_id:
        return ErrorCode.fenced_instance_id, None
    member = known.members.get(member_id)
    if member is None or member.classic is None or (instance_id is not None and holder_id is None):
        return ErrorCode.unknown_member_id, None
    is_current = generation == known.reached_by(member_id).epoch
    return (ErrorCode.none if is_current else ErrorCode.illegal_generation), member.classic


def _must_rejoin(known: ConsumerGroup, member_id: str) -> bool:
    """True if there is a next step for the member: the group's epoch has changed, it must release
    partitions, or partitions for which it waits are free.
    """
    reached = known.reached_by(member_id)
    if reached.epoch < known.epoch or reached.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if reached.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = known.targets.get(member_id, frozenset()) - reached.assigned
    return missing.isdisjoint(known.holders(but=member_id))


def _ask_to_rejoin(known: ConsumerGroup, member_id: str) -> StartTimer:
    """Give the member the rebalance timeout to rejoin, from the first answer that asks it to."""
    key = TimerKey(TimerKind.REJOIN, known.group_id, member_id)
    return StartTimer(key=key, delay_ms=known.members[member_id].rebalance_timeout_ms, keeps_running=True)


def _heartbeat(known: ConsumerGroup, command: Heartbeat, token: int) -> Decision:
    error, classic = _member_error(known, command.member_id, command.group_instance_id, command.generation)
    if error is not ErrorCode.none or classic is None:
        return _answer(token, CodeReply(error=error))
    key = TimerKey(TimerKind.CONSUMER_SESSION, known.group_id, command.member_id)
    effects: list[Effect] = [StartTimer(key=key, delay_ms=classic.session_timeout_ms)]
    if _must_rejoin(known, command.member_id):
        error = ErrorCode.rebalance_in_progress
        effects.append(_ask_to_rejoin(known, command.member_id))
    return _answer(token, CodeReply(error=error), *effects)


def _sync(known: ConsumerGroup, command: SyncGroup, token: int) -> Decision:
    member_id = command.member_id
    error, classic = _member_error(known, member_id, command.group_instance_id, command.generation)
    if error is ErrorCode.none and command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        error = ErrorCode.inconsistent_group_protocol
    if error is not ErrorCode.none or classic is None:
        return _answer(token, SyncReply(error=error))
    reached = known.reached_by(member_id)
    key = TimerKey(TimerKind.CONSUMER_SESSION, known.group_id, member_id)
    synced: tuple[Effect, ...] = (
        StartTimer(key=key, delay_ms=classic.session_timeout_ms),
        CancelTimer(key=key._replace(kind=TimerKind.FIRST_SYNC)),
    )
    if reached.epoch < known.epoch and reached.state is not MemberState.UNREVOKED_PARTITIONS:
        reply = SyncReply(error=ErrorCode.rebalance_in_progress)
        return _answer(token, reply, *synced, _ask_to_rejoin(known, member_id))
    protocol, metadata = classic.protocols[0]
    assignment = assignment_of(decode_subscription(metadata).version, reached.assigned, command.topics)
    reply = SyncReply(protocol_type=CONSUMER_PROTOCOL_TYPE, protocol=protocol, assignment=assignment)
    return _answer(token, reply, *synced)


# --- leave


def _leave(known: ConsumerGroup, command: LeaveGroup, limits: GroupLimits, *, token: int, now_ms: int) -> Decision:
    found = [_leaving(known, leaving) for leaving in command.members]
    gone = {member_id for _, member_id in found if member_id is not None}
    decision = Decision()
    if gone:
        reason = f"{', '.join(sorted(gone))} leaves"
        decision = after_removal(known, gone, reason, limits, now_ms=now_ms, topics=command.topics)
    reply = LeaveReply(errors=tuple(error for error, _ in found))
    return replace(decision, effects=(*decision.effects, Answer(token=token, reply=reply)))


def _leaving(known: ConsumerGroup, leaving: LeavingMember) -> tuple[ErrorCode, str | None]:
    """Find the leaving member, of either protocol: an administrator may remove any member."""
    holder_id = known.static_member(leaving.group_instance_id)
    if leaving.group_instance_id is not None and holder_id is None:
        return ErrorCode.unknown_member_id, None
    if leaving.member_id and holder_id is not None and holder_id != leaving.member_id:
        return ErrorCode.fenced_instance_id, None
    member_id = holder_id or leaving.member_id
    if member_id not in known.members:
        return ErrorCode.unknown_member_id, None
    return ErrorCode.none, member_id
