"""Decides commands for a group whose members speak KIP-848, between `core/group_machine.py` and the
rules in `core/consumer_groups.py`. Pure. Every function returns a decision, or None if the command
does not concern members; groups of both protocols handle such a command alike.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.groups.core.consumer_protocol import consumer_groups
from broker.groups.core.consumer_protocol.consumer_group_offsets import commit_error
from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact, ConsumerGroup, MemberState
from broker.groups.core.consumer_protocol.consumer_turn import ConsumerTurn
from broker.groups.core.consumer_protocol.group_migration import MEMBER_TIMERS, after_removal
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    CodeReply,
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    Decision,
    DeleteGroup,
    Effect,
    EvictMembers,
    FireTimer,
    MirrorOffsets,
    PartitionsReply,
    Reply,
    StartTimer,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_turn import GroupLimits
from wire.batches.consumer_group_records import CURRENT_KIND, ConsumerGroupKey


def heartbeat(
    known: ConsumerGroup, command: ConsumerHeartbeat, limits: GroupLimits, *, token: int, now_ms: int
) -> Decision:
    """ConsumerGroupHeartbeat."""
    said = command.said
    turn, reply = consumer_groups.heartbeat(
        known, said, command.topics, size_max=limits.consumer_size_max, assignors=limits.consumer_assignors
    )
    if said.member_id in known.members and said.member_id not in turn.group.members:
        reason = f"{said.member_id} leaves"
        removed = after_removal(known, {said.member_id}, reason, limits, now_ms=now_ms, topics=command.topics)
        return replace(removed, effects=(*removed.effects, Answer(token=token, reply=reply)))
    effects = list(_timers(turn, command.said.member_id, limits)) if reply.error is ErrorCode.none else []
    effects.append(Answer(token=token, reply=reply))
    return Decision(records=tuple(turn.facts), effects=tuple(effects), reason=turn.reason)


def fire(known: ConsumerGroup, command: FireTimer, limits: GroupLimits, *, now_ms: int) -> Decision:
    """A timer fired: a member sent no heartbeat, or did not release its partitions in time; a
    member of the classic protocol did not join or sync in time.
    """
    key = command.key
    # the member has released its partitions just in time
    is_late = known.reached_by(key.member_id).state is MemberState.UNREVOKED_PARTITIONS
    is_over = key.kind is TimerKind.CONSUMER_REBALANCE and not is_late
    if is_over or key.member_id not in known.members:
        return Decision()
    reason = f"{key.member_id} {_WHY[key.kind]}"
    return after_removal(known, {key.member_id}, reason, limits, now_ms=now_ms, topics=command.topics)


def refuse(known: ConsumerGroup, command: Command, token: int) -> Decision | None:
    """The decision for a command that must not, or need not, reach the rules for classic groups."""
    reply = _refusal(known, command)
    if reply is not None:
        return Decision(effects=(Answer(token=token, reply=reply),))
    if isinstance(command, EvictMembers):
        return _evict(known)
    return None


def resume(known: ConsumerGroup, limits: GroupLimits) -> Decision:
    """After a replay of the log: members have one session timeout to return."""
    turn = ConsumerTurn(known, {}, 0)
    effects = [effect for member_id in known.members for effect in _timers(turn, member_id, limits, is_begun=True)]
    return Decision(effects=tuple(effects))


_KINDS = (TimerKind.CONSUMER_SESSION, TimerKind.CONSUMER_REBALANCE)
_WHY = {
    TimerKind.CONSUMER_SESSION: "exceeded its session timeout",
    TimerKind.CONSUMER_REBALANCE: "exceeded its rebalance timeout with partitions to give up",
    TimerKind.REJOIN: "did not rejoin in time",
    TimerKind.FIRST_SYNC: "did not send SyncGroup in time",
}


def _refusal(known: ConsumerGroup, command: Command) -> Reply | None:
    has_members = bool(known.members)
    match command:
        case CommitOffsets():
            return _commit_refusal(known, command)
        case MirrorOffsets() if has_members:
            return PartitionsReply(error=ErrorCode.non_empty_group)
        case DeleteGroup() if has_members:
            return CodeReply(error=ErrorCode.non_empty_group)
        case _:
            return None


def _commit_refusal(known: ConsumerGroup, command: CommitOffsets) -> PartitionsReply | None:
    error = commit_error(known, command)
    return None if error is ErrorCode.none else PartitionsReply(error=error)


def _evict(known: ConsumerGroup) -> Decision:
    facts: list[ConsumerFact] = []
    effects: list[Effect] = []
    left = known
    for member_id in known.members:
        turn = consumer_groups.remove_member(left, member_id, "belongs to another site")
        facts += turn.facts
        left = turn.group
        # timers of removed members would only fire without effect
        effects += [CancelTimer(key=TimerKey(kind, known.group_id, member_id)) for kind in MEMBER_TIMERS]
    return Decision(records=tuple(facts), effects=tuple(effects), reason="another site coordinates the group")


def _timers(turn: ConsumerTurn, member_id: str, limits: GroupLimits, *, is_begun: bool = False) -> list[Effect]:
    """Restart a member's session, and its rebalance timeout if the answer asks it to revoke
    partitions.
    """
    session, rebalance = (TimerKey(kind, turn.group.group_id, member_id) for kind in _KINDS)
    member = turn.group.members.get(member_id)
    if member is None:
        return [CancelTimer(key=session), CancelTimer(key=rebalance)]
    session_timeout_ms = limits.consumer_session_timeout_ms
    if member.classic is not None:
        session_timeout_ms = member.classic.session_timeout_ms
    effects: list[Effect] = [StartTimer(key=session, delay_ms=session_timeout_ms)]
    if turn.group.reached_by(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
        effects.append(CancelTimer(key=rebalance))
    elif is_begun or any(
        fact.key == ConsumerGroupKey(CURRENT_KIND, turn.group.group_id, member_id) for fact in turn.facts
    ):
        effects.append(StartTimer(key=rebalance, delay_ms=max(member.rebalance_timeout_ms, 0)))
    return effects
