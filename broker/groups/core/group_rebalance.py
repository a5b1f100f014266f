"""The transition from one generation of a group to the next: begin, wait for members, complete the
generation. Pure, on a `Turn`.

A rebalance begins when a member joins, leaves or changes. It ends when all members have joined and
every client with a member id has returned, or after the longest rebalance timeout of the members:
dynamic members that have not joined by then are removed, static ones stay. The first rebalance of
an empty group waits a fixed delay instead, prolonged by new members up to the rebalance timeout
(KIP-134).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.groups.core.group_messages import JoinedMember, JoinReply, SyncReply, TimerKind
from broker.groups.core.group_states import Group, GroupState, InitialDelay, Member
from broker.groups.core.group_turn import Turn, unparked


def begin(turn: Turn, reason: str) -> None:
    """Begin a rebalance; if one is in progress, only check whether it is complete now."""
    group = turn.group
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete(turn)
        return
    turn.reason = f"rebalance of generation {group.generation}: {reason}"
    # members that wait for an assignment of this generation will not get one
    if group.state is GroupState.COMPLETING_REBALANCE:
        _refuse_syncs(turn)
    turn.cancel_timer(TimerKind.SYNC)
    is_first = group.state is GroupState.EMPTY
    turn.group = replace(turn.group.in_state(GroupState.PREPARING_REBALANCE, now_ms=turn.now_ms), unsynced=frozenset())
    if is_first:
        delay_ms = turn.limits.initial_rebalance_delay_ms
        # earlier members of the group count too: a first rebalance lasts at most as long as each of
        # them allows
        left_ms = max(group.rebalance_timeout_ms, turn.group.rebalance_timeout_ms) - delay_ms
        turn.group = replace(turn.group, initial_delay=InitialDelay(left_ms=max(left_ms, 0)))
        turn.start_timer(TimerKind.JOIN, delay_ms)
        return
    turn.start_timer(TimerKind.JOIN, turn.group.rebalance_timeout_ms)
    try_complete(turn)


def _refuse_syncs(turn: Turn) -> None:
    members = []
    for member in turn.group.members.values():
        turn.answer(member.sync_token, SyncReply(error=ErrorCode.rebalance_in_progress))
        # the member could not send heartbeats while its request waited
        if member.sync_token is not None:
            turn.restart_session(member)
        members.append(replace(member, sync_token=None, assignment=b""))
    turn.group = turn.group.with_members(members)


def try_complete(turn: Turn) -> None:
    """Form the generation if no member is awaited."""
    group = turn.group
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None and group.has_all_joined:
        complete(turn)


def join_time_is_up(turn: Turn) -> None:
    """The JOIN timer fired: wait longer for new members of a first rebalance, else form the
    generation from the members that have joined.
    """
    group = turn.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.left_ms > 0:
        more_ms = min(turn.limits.initial_rebalance_delay_ms, delay.left_ms)
        turn.group = replace(group, initial_delay=InitialDelay(left_ms=delay.left_ms - more_ms))
        turn.start_timer(TimerKind.JOIN, more_ms)
        return
    complete(turn)


def complete(turn: Turn) -> None:
    """Form the next generation from the members that have joined."""
    for member in tuple(turn.group.members.values()):
        if member.join_token is None and not member.is_static:
            turn.drop(member, ErrorCode.unknown_member_id)
    group = turn.group = replace(turn.group, initial_delay=None)
    joined = [member for member in group.members.values() if member.join_token is not None]
    if not group.members:
        # an empty generation is stored: earlier members cannot commit under its number
        _become_empty(turn)
    elif not joined:
        # Only static members that have not joined: they keep their assignment until their sessions
        # end.
        turn.start_timer(TimerKind.JOIN, group.rebalance_timeout_ms)
    else:
        # the former leader may be a static member that has not joined
        if group.leader not in {member.member_id for member in joined}:
            turn.group = replace(group, leader=joined[0].member_id)
        _start_generation(turn)


def _become_empty(turn: Turn) -> None:
    turn.cancel_timer(TimerKind.JOIN)
    turn.cancel_timer(TimerKind.SYNC)
    turn.group = replace(
        turn.group.in_state(GroupState.EMPTY, now_ms=turn.now_ms),
        generation=turn.group.generation + 1,
        protocol=None,
        leader=None,
        unsynced=frozenset(),
    )
    turn.must_store = True
    turn.reason = f"generation {turn.group.generation} is empty"


def _start_generation(turn: Turn) -> None:
    turn.cancel_timer(TimerKind.JOIN)
    group = turn.group
    members = list(group.members.values())
    # without assignments: those of the last generation must not be returned again
    turn.group = replace(
        group.in_state(GroupState.COMPLETING_REBALANCE, now_ms=turn.now_ms).with_members(
            replace(unparked(member), is_new=False, assignment=b"") for member in members
        ),
        generation=group.generation + 1,
        protocol=group.vote(),
        unsynced=frozenset(group.members),
    )
    for member in members:
        turn.answer(member.join_token, generation_reply(turn.group, member.member_id))
        # the session timer of a static member that has not joined continues
        if member.join_token is not None:
            turn.restart_session(turn.group.members[member.member_id])
    turn.start_timer(TimerKind.SYNC, turn.group.rebalance_timeout_ms)
    turn.reason = f"generation {turn.group.generation} has {len(members)} members under {turn.group.protocol}"


def generation_reply(group: Group, member_id: str) -> JoinReply:
    """The answer with the group's current generation; the leader gets all subscriptions."""
    members = joined_members(group) if member_id == group.leader else ()
    return JoinReply(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=members,
    )


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    """The subscription of each member under the generation's protocol."""
    return tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata_for(group.protocol))
        for member in group.members.values()
    )


def remove(turn: Turn, member: Member, error: ErrorCode, reason: str) -> None:
    """Remove a member and let the others rebalance."""
    turn.drop(member, error)
    if turn.group.state is GroupState.EMPTY:
        return
    begin(turn, reason)
