"""The classic consumer-group protocol: joining, syncing, heartbeats, leaving, and the effects of
timers. Pure, on a `Turn`.

Each function answers the request of this turn, or stores its token with the member so that a later
turn answers it. The rules are those of Apache Kafka's coordinator, with KIP-62 (rebalance timeout),
KIP-134 (first rebalance), KIP-345 (static members), KIP-394 (member ids are assigned first) and
KIP-814 (a static leader may skip the assignment).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec import structs
from msgspec.structs import replace

from broker.groups.core import group_rebalance as rebalance
from broker.groups.core.group_messages import (
    CodeReply,
    EvictMembers,
    FireTimer,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    SyncGroup,
    SyncReply,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_states import GroupState, Member, must_rebalance
from broker.groups.core.group_turn import Turn

# --- join


def join(turn: Turn, command: JoinGroup) -> None:
    """A consumer asks to become, or stay, a member."""
    error = _join_error(turn, command)
    if error is not ErrorCode.none:
        turn.answer(turn.token, JoinReply(error=error, member_id=command.member_id))
        turn.reason = f"join refused: {error.name}"
    elif command.member_id:
        _join_known(turn, command)
    elif (former := turn.group.static_member(command.group_instance_id)) is not None:
        _replace_static(turn, command, former)
    elif command.group_instance_id is None and command.requires_known_member:
        # a client that loses its first answer leaves no member behind (KIP-394)
        _hand_out_id(turn, command)
    else:
        _add(turn, command, command.fresh_member_id)


def _join_error(turn: Turn, command: JoinGroup) -> ErrorCode:
    limits, group = turn.limits, turn.group
    if not command.group_id:
        return ErrorCode.invalid_group_id
    if not limits.session_timeout_ms_min <= command.session_timeout_ms <= limits.session_timeout_ms_max:
        return ErrorCode.invalid_session_timeout
    if not command.protocol_type or not command.protocols:
        return ErrorCode.inconsistent_group_protocol
    if command.member_id:
        error = _identity_error(turn, command.member_id, command.group_instance_id)
        if error is not ErrorCode.none and command.member_id not in group.pending:
            return error
        # pending ids are assigned to dynamic members only
        if command.member_id in group.pending and command.group_instance_id is not None:
            return ErrorCode.unknown_member_id
    if not _others_support(turn, command):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.none if _has_room(turn, command) else ErrorCode.group_max_size_reached


def _others_support(turn: Turn, command: JoinGroup) -> bool:
    """A member that is alone in its group may change its protocols freely."""
    group = turn.group
    if group.members and command.protocol_type != group.protocol_type:
        return False
    former = group.members.get(command.member_id) or group.static_member(command.group_instance_id)
    others = group if former is None else group.without_member(former.member_id)
    return others.supports(command.protocol_type, command.protocols)


def _has_room(turn: Turn, command: JoinGroup) -> bool:
    group = turn.group
    # these members replace themselves, so the bound does not apply
    if command.member_id in group.members or group.static_member(command.group_instance_id) is not None:
        return True
    return len(group.members) < turn.limits.size_max


def _identity_error(turn: Turn, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """The error if the request does not come from the member that the group knows; `none`
    otherwise.
    """
    group = turn.group
    holder = group.static_member(group_instance_id)
    if group_instance_id is not None and holder is not None and holder.member_id != member_id:
        return ErrorCode.fenced_instance_id
    if member_id not in group.members or (group_instance_id is not None and holder is None):
        return ErrorCode.unknown_member_id
    return ErrorCode.none


def _hand_out_id(turn: Turn, command: JoinGroup) -> None:
    member_id = command.fresh_member_id
    turn.group = replace(turn.group, pending=turn.group.pending | {member_id})
    # removed again if the second join does not come
    turn.start_timer(TimerKind.PENDING, command.session_timeout_ms, member_id)
    turn.answer(turn.token, JoinReply(error=ErrorCode.member_id_required, member_id=member_id))


def _member(turn: Turn, command: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        join_token=turn.token,
    )


def _add(turn: Turn, command: JoinGroup, member_id: str) -> None:
    group = turn.group
    if member_id in group.pending:
        turn.cancel_timer(TimerKind.PENDING, member_id)
        turn.group = replace(group, pending=group.pending - {member_id})
    # the first member of an empty group decides its protocol type
    if not group.members:
        turn.group = replace(turn.group, protocol_type=command.protocol_type)
    turn.put(replace(_member(turn, command, member_id), is_new=True))
    turn.restart_session(turn.group.members[member_id])
    delay = turn.group.initial_delay
    # the first rebalance waits longer while members join (KIP-134)
    if delay is not None:
        turn.group = replace(turn.group, initial_delay=replace(delay, has_newcomer=True))
    rebalance.begin(turn, f"{member_id} joins")


def _join_known(turn: Turn, command: JoinGroup) -> None:
    group = turn.group
    if command.member_id in group.pending:
        _add(turn, command, command.member_id)
        return
    former = group.members[command.member_id]
    is_unchanged = former.protocols == command.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
        # The first answer was lost.
        turn.restart_session(former)
        turn.answer(turn.token, rebalance.generation_reply(group, former.member_id))
    elif group.state is GroupState.STABLE and is_unchanged and group.leader != former.member_id:
        # the leader's join is not a repetition: it may have seen new partitions and wants to assign
        # again
        turn.restart_session(former)
        turn.answer(turn.token, rebalance.generation_reply(group, former.member_id))
    else:
        _rejoin(turn, command, former)


def _rejoin(turn: Turn, command: JoinGroup, former: Member) -> None:
    # only one join of a member waits at a time: the client has dropped the earlier one
    turn.answer(former.join_token, JoinReply(error=ErrorCode.rebalance_in_progress, member_id=former.member_id))
    turn.put(
        replace(
            _member(turn, command, former.member_id),
            is_new=former.is_new,
            assignment=former.assignment,
            sync_token=former.sync_token,
        )
    )
    turn.restart_session(turn.group.members[former.member_id])
    rebalance.begin(turn, f"{former.member_id} joins again")


def _replace_static(turn: Turn, command: JoinGroup, former: Member) -> None:
    """A static member has restarted: its new id fences the old one, and a stable group need not
    rebalance.
    """
    before = turn.group
    turn.refuse_parked(former, ErrorCode.fenced_instance_id)
    turn.cancel_timer(TimerKind.SESSION, former.member_id)
    successor = replace(
        _member(turn, command, command.fresh_member_id), assignment=former.assignment, is_new=former.is_new
    )
    turn.group = before.with_renamed_member(former.member_id, successor)
    turn.restart_session(successor)
    reason = f"{command.group_instance_id} is {successor.member_id} now"
    # with another vote, the stored assignment would belong to another protocol
    if before.state is not GroupState.STABLE or turn.group.vote() != before.protocol:
        rebalance.begin(turn, reason)
        return
    turn.put(replace(successor, join_token=None))
    # stored, so that the next coordinator fences the old id too
    turn.must_store = True
    turn.reason = reason
    turn.answer(turn.token, _current_reply(turn, command, successor, former_leader=before.leader or ""))


def _current_reply(turn: Turn, command: JoinGroup, successor: Member, *, former_leader: str) -> JoinReply:
    reply = rebalance.generation_reply(turn.group, successor.member_id)
    if command.may_skip_assignment:
        return structs.replace(reply, skip_assignment=turn.group.leader == successor.member_id)
    # an older client that believes it leads would assign again, so its answer names the former
    # leader
    return structs.replace(reply, leader=former_leader, members=())


# --- sync


def sync(turn: Turn, command: SyncGroup) -> None:
    """A member asks for its assignment; the leader's request brings them."""
    group = turn.group
    error = _generation_error(turn, command.member_id, command.group_instance_id, command.generation)
    if error is ErrorCode.none and _has_other_protocol(turn, command):
        error = ErrorCode.inconsistent_group_protocol
    if error is ErrorCode.none and group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.rebalance_in_progress
    if error is not ErrorCode.none:
        turn.answer(turn.token, SyncReply(error=error))
        return
    _record_sync(turn, command.member_id)
    if group.state is GroupState.STABLE:
        turn.restart_session(turn.group.members[command.member_id])
        turn.answer(turn.token, _assignment_reply(turn, command.member_id))
        return
    _park_sync(turn, command.member_id)
    if command.member_id == group.leader:
        _apply_assignment(turn, command)


def _generation_error(turn: Turn, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
    error = _identity_error(turn, member_id, group_instance_id)
    if error is ErrorCode.none and generation != turn.group.generation:
        return ErrorCode.illegal_generation
    return error


def member_error(turn: Turn, *, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
    """The error if the request does not come from a member of the current generation; `none`
    otherwise.
    """
    return _generation_error(turn, member_id, group_instance_id, generation)


def _has_other_protocol(turn: Turn, command: SyncGroup) -> bool:
    group = turn.group
    return (command.protocol_type is not None and command.protocol_type != group.protocol_type) or (
        command.protocol is not None and command.protocol != group.protocol
    )


def _record_sync(turn: Turn, member_id: str) -> None:
    awaited = turn.group.unsynced - {member_id}
    if not awaited and turn.group.unsynced:
        turn.cancel_timer(TimerKind.SYNC)
    turn.group = replace(turn.group, unsynced=awaited)


def _park_sync(turn: Turn, member_id: str) -> None:
    member = turn.group.members[member_id]
    turn.answer(member.sync_token, SyncReply(error=ErrorCode.rebalance_in_progress))
    turn.put(replace(member, sync_token=turn.token))


def _apply_assignment(turn: Turn, command: SyncGroup) -> None:
    waiting = [member for member in turn.group.members.values() if member.sync_token is not None]
    turn.group = turn.group.in_state(GroupState.STABLE, now_ms=turn.now_ms).with_members(
        # a member that the leader left out gets an empty assignment, as in Kafka
        replace(member, sync_token=None, assignment=command.assignments.get(member.member_id, b""))
        for member in turn.group.members.values()
    )
    for member in waiting:
        turn.restart_session(member)
        turn.answer(member.sync_token, _assignment_reply(turn, member.member_id))
    turn.must_store = True
    turn.reason = f"generation {turn.group.generation} is stable"


def _assignment_reply(turn: Turn, member_id: str) -> SyncReply:
    group = turn.group
    return SyncReply(
        protocol_type=group.protocol_type, protocol=group.protocol, assignment=group.members[member_id].assignment
    )


# --- heartbeat, leave


def heartbeat(turn: Turn, command: Heartbeat) -> None:
    """A member is alive; the answer reports a rebalance to it."""
    error = _generation_error(turn, command.member_id, command.group_instance_id, command.generation)
    if error is ErrorCode.none:
        # first: a member that is asked to rejoin is alive
        turn.restart_session(turn.group.members[command.member_id])
        if turn.group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.rebalance_in_progress
    turn.answer(turn.token, CodeReply(error=error))


def leave(turn: Turn, command: LeaveGroup) -> None:
    """Members leave; the others rebalance once."""
    errors = tuple(_leave_one(turn, leaving) for leaving in command.members)
    turn.answer(turn.token, LeaveReply(errors=errors))


def _leave_one(turn: Turn, leaving: LeavingMember) -> ErrorCode:
    group = turn.group
    if leaving.member_id in group.pending and leaving.group_instance_id is None:
        _forget_pending(turn, leaving.member_id)
        return ErrorCode.none
    member = group.members.get(leaving.member_id)
    # by the instance id alone: an administrator removes a static member (KIP-345)
    if not leaving.member_id and leaving.group_instance_id is not None:
        member = group.static_member(leaving.group_instance_id)
        if member is None:
            return ErrorCode.unknown_member_id
    elif leaving.group_instance_id is not None:
        error = _identity_error(turn, leaving.member_id, leaving.group_instance_id)
        if error is not ErrorCode.none:
            return error
    if member is None:
        return ErrorCode.unknown_member_id
    rebalance.remove(turn, member, ErrorCode.unknown_member_id, f"{member.member_id} leaves")
    return ErrorCode.none


def _forget_pending(turn: Turn, member_id: str) -> None:
    turn.cancel_timer(TimerKind.PENDING, member_id)
    turn.group = replace(turn.group, pending=turn.group.pending - {member_id})
    rebalance.try_complete(turn)


# --- timers, replay, roles


def fire(turn: Turn, command: FireTimer) -> None:
    """A timer has fired; an outdated timer is ignored."""
    key = command.key
    match key.kind:
        case TimerKind.JOIN:
            rebalance.join_time_is_up(turn)
        case TimerKind.SYNC:
            _sync_time_is_up(turn)
        case TimerKind.PENDING:
            if key.member_id in turn.group.pending:
                _forget_pending(turn, key.member_id)
        case TimerKind.SESSION:
            _session_ended(turn, key)


def _session_ended(turn: Turn, key: TimerKey) -> None:
    member = turn.group.members.get(key.member_id)
    if member is None:
        return
    # the member cannot send heartbeats while its request waits, and may have disconnected
    if member.is_waiting and not member.is_new:
        turn.restart_session(member)
        return
    rebalance.remove(turn, member, ErrorCode.unknown_member_id, f"the session of {member.member_id} ended")


def _sync_time_is_up(turn: Turn) -> None:
    group = turn.group
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        turn.drop(turn.group.members[member_id], ErrorCode.unknown_member_id)
    rebalance.begin(turn, f"{len(group.unsynced)} members did not send SyncGroup")


def resume(turn: Turn) -> None:
    # no member could send a heartbeat while the log was replayed
    """After a replay, give each member one session timeout to return."""
    for member in turn.group.members.values():
        turn.restart_session(member)
    if must_rebalance(turn.group):
        turn.group = replace(turn.group, leader=next(iter(turn.group.members)))
        rebalance.begin(turn, "the group changed to the classic protocol")


def evict(turn: Turn, _command: EvictMembers) -> None:
    """Another site coordinates the group: remove its members here."""
    for member_id in turn.group.pending:
        turn.cancel_timer(TimerKind.PENDING, member_id)
    turn.group = replace(turn.group, pending=frozenset(), initial_delay=None)
    if not turn.group.members:
        if turn.group.state is GroupState.PREPARING_REBALANCE:
            rebalance.complete(turn)
        return
    for member in tuple(turn.group.members.values()):
        turn.drop(member, ErrorCode.not_coordinator)
    turn.group = turn.group.in_state(GroupState.PREPARING_REBALANCE, now_ms=turn.now_ms)
    rebalance.complete(turn)
    turn.reason = "another site coordinates the group"
