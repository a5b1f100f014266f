"""KIP-848 groups: the effects of a heartbeat. Pure; computes a decision on a copy of the group and
returns the records that lead to it.

One request does everything: it joins, reports the member's subscription and partitions, and is
answered with the partitions that the member may own. When the group's epoch has changed, the
coordinator computes the target assignment and moves each member to it step by step: the member
first revokes partitions that it must not own and reports this, then it gets partitions that others
have revoked. Called by `core/group_machine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.groups.core.consumer_protocol.consumer_group_states import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerFact,
    ConsumerGroup,
    MemberState,
    Reached,
    TopicShapes,
    copy_of,
    partitions_of,
)
from broker.groups.core.consumer_protocol.consumer_targets import metadata_hash_of, work_target_out
from broker.groups.core.consumer_protocol.consumer_turn import ConsumerTurn
from broker.groups.core.consumer_protocol.server_assignors import ASSIGNORS, Owned
from broker.groups.core.consumer_protocol.topic_patterns import InvalidPattern, compiled_pattern
from wire.batches.consumer_group_records import (
    CURRENT_KIND,
    GROUP_KIND,
    MEMBER_KIND,
    TARGET_EPOCH_KIND,
    TARGET_KIND,
    ClassicMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetAssignment,
)

NO_TIMEOUT: Final = -1


class MemberHeartbeat(Struct, frozen=True, kw_only=True):
    """The fields of a member's heartbeat; None means "unchanged"."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Owned | None
    classic: ClassicMember | None = None
    """Set for a member of the classic protocol, whose JoinGroup acts like a heartbeat
    (`core/classic_members.py`).
    """


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """The member's epoch; `assigned` only if the answer must contain it."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    assigned: Owned | None = None


class Refused(Exception):
    """The heartbeat cannot be taken."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def heartbeat(
    known: ConsumerGroup,
    said: MemberHeartbeat,
    topics: TopicShapes,
    *,
    size_max: int,
    assignors: Sequence[str] = tuple(ASSIGNORS),
) -> tuple[ConsumerTurn, HeartbeatReply]:
    """Apply a heartbeat; `topics` are all topics that clients can see."""
    # most heartbeats: no copy and no target is made for them
    if known.checked_topics is topics and _changes_nothing(known, said):
        return ConsumerTurn(known, topics, size_max), _reply(known, said, known.reached[said.member_id])
    turn = ConsumerTurn(copy_of(known), topics, size_max, assignors)
    try:
        if said.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
            return turn, _leave(turn, said)
        reached, is_news = _stay(turn, said)
    except Refused as refused:
        # changes that the refused heartbeat made in the copy must not be written
        turn.facts.clear()
        turn.reason = f"{said.member_id}: {refused.error.name}"
        return turn, HeartbeatReply(error=refused.error, message=refused.message)
    # stored on the group itself: it only saves work, and if it is lost, one more comparison is made
    known.checked_topics = topics if turn.group.epoch == known.epoch else None
    if said.owned is not None:
        known.reported_owned[said.member_id] = said.owned
    return turn, _reply(known, said, reached, is_news=is_news)


def _reply(known: ConsumerGroup, said: MemberHeartbeat, reached: Reached, *, is_news: bool = False) -> HeartbeatReply:
    """Sends the member its assignment until the member reports exactly that as owned: a client
    ignores a late answer.
    """
    must_be_sent = is_news or known.reported_owned.get(said.member_id) != reached.assigned
    return HeartbeatReply(
        member_id=said.member_id,
        member_epoch=reached.epoch,
        assigned=reached.assigned if must_be_sent else None,
    )


def _changes_nothing(known: ConsumerGroup, said: MemberHeartbeat) -> bool:
    """True if a member that has reached its target only reports that it is alive."""
    reached = known.reached.get(said.member_id)
    return (
        reached is not None
        and reached.state is MemberState.STABLE
        and said.member_epoch == reached.epoch == known.target_epoch == known.epoch
        and all(
            news is None
            for news in (said.topic_names, said.topic_regex, said.server_assignor, said.owned, said.rack_id)
        )
        and said.instance_id is None
        and said.rebalance_timeout_ms == NO_TIMEOUT
    )


def remove_member(known: ConsumerGroup, member_id: str, reason: str) -> ConsumerTurn:
    """Remove a member whose session ended, or that did not revoke its partitions in time."""
    turn = ConsumerTurn(copy_of(known), {}, 0)
    if member_id in turn.group.members:
        forget_member(turn, member_id)
        _raise_epoch(turn, turn.group.metadata_hash)
        turn.reason = reason
    return turn


def removal(known: ConsumerGroup) -> list[ConsumerFact]:
    """Records that remove the group completely."""
    turn = ConsumerTurn(copy_of(known), {}, 0)
    for member_id in known.members:
        forget_member(turn, member_id)
    turn.put(TARGET_EPOCH_KIND, None)
    turn.put(GROUP_KIND, None)
    return turn.facts


# --- leaving


def _leave(turn: ConsumerTurn, said: MemberHeartbeat) -> HeartbeatReply:
    group = turn.group
    _check_member(group, said)
    if said.member_epoch == LEAVING_STATIC_EPOCH:
        # a static member will return: it keeps its assignment and its partitions until its session
        # ends; it has closed, so the partitions that it had to give up are free
        reached = group.reached_by(said.member_id)
        kept = Reached(LEAVING_STATIC_EPOCH, reached.previous_epoch, MemberState.STABLE, reached.assigned)
        put_reached(turn, said.member_id, kept)
        turn.reason = f"{said.member_id} left temporarily"
    else:
        forget_member(turn, said.member_id)
        _raise_epoch(turn, group.metadata_hash)
        turn.reason = f"{said.member_id} leaves"
    return HeartbeatReply(member_id=said.member_id, member_epoch=said.member_epoch)


def forget_member(turn: ConsumerTurn, member_id: str) -> None:
    """Remove all state of a member."""
    if member_id in turn.group.reached:
        turn.put(CURRENT_KIND, None, member_id)
    if member_id in turn.group.targets:
        turn.put(TARGET_KIND, None, member_id)
    turn.put(MEMBER_KIND, None, member_id)


# --- staying


def _stay(turn: ConsumerTurn, said: MemberHeartbeat) -> tuple[Reached, bool]:
    """Returns the partitions that the member owns now, and whether the response must list them (the
    member asked for them, or they changed).
    """
    group = turn.group
    former = group.members.get(said.member_id)
    before = group.reached_by(said.member_id)
    if said.member_epoch == JOINING_EPOCH:
        before = _join(turn, said) or before
    else:
        _check_epoch(turn, said)
    reached = lead_on(turn, said, former)
    is_asking = said.member_epoch == JOINING_EPOCH or said.owned is not None
    return reached, is_asking or reached.assigned != before.assigned


def lead_on(turn: ConsumerTurn, said: MemberHeartbeat, former: MemberMetadata | None) -> Reached:
    """Apply the member's report, compute a new target if necessary, and take the member's next step
    towards it.
    """
    _apply_subscription(turn, said, former)
    work_target_out(turn)
    reached = _next_step(turn, said)
    if reached != turn.group.reached.get(said.member_id):
        put_reached(turn, said.member_id, reached)
    return reached


def _check_member(group: ConsumerGroup, said: MemberHeartbeat) -> None:
    """Refuse an unknown member, and one whose instance id has a successor."""
    known_as = said.member_id if said.instance_id is None else group.static_member(said.instance_id)
    if known_as not in group.members:
        raise Refused(ErrorCode.unknown_member_id, f"{said.member_id} is not a member of {group.group_id}")
    if known_as != said.member_id:
        raise Refused(ErrorCode.fenced_instance_id, f"{said.instance_id} is used by another member")


def _check_epoch(turn: ConsumerTurn, said: MemberHeartbeat) -> None:
    group = turn.group
    _check_member(group, said)
    reached = group.reached_by(said.member_id)
    if said.member_epoch == reached.epoch:
        return
    # the answer with the newer epoch was lost: the member continues if it owns no partition that it
    # must not own
    is_repeated = said.member_epoch == reached.previous_epoch and said.owned is not None
    if not (is_repeated and said.owned is not None and said.owned <= reached.assigned):
        message = f"{said.member_id} has epoch {reached.epoch}, not {said.member_epoch}"
        raise Refused(ErrorCode.fenced_member_epoch, message)


def _join(turn: ConsumerTurn, said: MemberHeartbeat) -> Reached | None:
    """A member joins or returns; partitions that a static member owned under its former id move to
    the new one.
    """
    group = turn.group
    former_id = group.static_member(said.instance_id)
    if former_id is None or former_id == said.member_id:
        # a known member is never refused: the bound applies to new members
        if said.member_id not in group.members and len(group.members) >= turn.size_max:
            raise Refused(ErrorCode.group_max_size_reached, f"{group.group_id} has {len(group.members)} members")
        return None
    reached = group.reached_by(former_id)
    if reached.epoch != LEAVING_STATIC_EPOCH and group.members[former_id].classic is None:
        # a classic member does not announce that it pauses: its successor replaces it, as in a
        # classic group
        raise Refused(ErrorCode.unreleased_instance_id, f"{said.instance_id} is used by another member")
    metadata, target = group.members[former_id], group.targets.get(former_id, frozenset())
    forget_member(turn, former_id)
    turn.put(MEMBER_KIND, metadata, said.member_id)
    turn.put(TARGET_KIND, TargetAssignment(partitions_of(target)), said.member_id)
    # only partitions that are still in its target: others may have been assigned to other members
    returned = Reached(JOINING_EPOCH, JOINING_EPOCH, MemberState.STABLE, reached.assigned & target)
    put_reached(turn, said.member_id, returned)
    turn.reason = f"{said.instance_id} is back as {said.member_id}"
    return returned


def _apply_subscription(turn: ConsumerTurn, said: MemberHeartbeat, former: MemberMetadata | None) -> None:
    if said.server_assignor is not None and said.server_assignor not in turn.assignors:
        accepted = ", ".join(turn.assignors)
        raise Refused(ErrorCode.unsupported_assignor, f"{said.server_assignor} is not supported; accepted: {accepted}")
    former = former or turn.group.members.get(said.member_id)
    metadata = MemberMetadata(
        instance_id=said.instance_id if former is None or said.instance_id is not None else former.instance_id,
        rack_id=said.rack_id if former is None or said.rack_id is not None else former.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        # None means unchanged; an empty tuple unsubscribes
        topic_names=_newer(said.topic_names, former.topic_names if former else ()),
        topic_regex=_regex(said, former),
        rebalance_timeout_ms=said.rebalance_timeout_ms
        if former is None or said.rebalance_timeout_ms != NO_TIMEOUT
        else former.rebalance_timeout_ms,
        server_assignor=said.server_assignor if former is None or said.server_assignor else former.server_assignor,
        classic=said.classic,
    )
    known = turn.group.members.get(said.member_id)
    if metadata != known:
        turn.put(MEMBER_KIND, metadata, said.member_id)
    is_changed = known is None or (known.topic_names, known.topic_regex, known.server_assignor) != (
        metadata.topic_names,
        metadata.topic_regex,
        metadata.server_assignor,
    )
    found = metadata_hash_of(turn)
    if is_changed or found != turn.group.metadata_hash:
        turn.reason = turn.reason or f"{said.member_id} or its topics are new"
        _raise_epoch(turn, found)


def _newer(said: tuple[str, ...] | None, former: tuple[str, ...]) -> tuple[str, ...]:
    return former if said is None else tuple(sorted(set(said)))


def _regex(said: MemberHeartbeat, former: MemberMetadata | None) -> str | None:
    if said.topic_regex is None:
        return None if former is None else former.topic_regex
    if said.topic_regex:
        try:
            compiled_pattern(said.topic_regex)
        except InvalidPattern as error:
            message = f"SubscribedTopicRegex `{said.topic_regex}` is not a valid regular expression: {error}"
            raise Refused(ErrorCode.invalid_regular_expression, message) from error
    # an empty text removes the pattern
    return said.topic_regex or None


def _raise_epoch(turn: ConsumerTurn, metadata_hash: int) -> None:
    turn.put(GROUP_KIND, GroupEpoch(turn.group.epoch + 1, metadata_hash))


def put_reached(turn: ConsumerTurn, member_id: str, reached: Reached) -> None:
    """Record which partitions a member owns now."""
    value = CurrentAssignment(
        reached.epoch,
        reached.previous_epoch,
        reached.state.value,
        partitions_of(reached.assigned),
        partitions_of(reached.pending_revocation),
    )
    turn.put(CURRENT_KIND, value, member_id)


def _next_step(turn: ConsumerTurn, said: MemberHeartbeat) -> Reached:
    group = turn.group
    reached = group.reached_by(said.member_id)
    is_pending = reached.state is MemberState.UNREVOKED_PARTITIONS
    if (
        is_pending
        # it still has partitions to revoke: it gets new ones only after it has reported that
        and said.member_epoch != JOINING_EPOCH
        and (said.owned is None or said.owned & reached.pending_revocation)
    ):
        return reached
    # already at the target: a heartbeat changes nothing
    if reached.state is MemberState.STABLE and reached.epoch == group.target_epoch:
        return reached
    target = group.targets.get(said.member_id, frozenset())
    kept = reached.assigned & target
    given_up = reached.assigned - target
    if given_up and said.member_epoch != JOINING_EPOCH and (said.owned is None or said.owned & given_up):
        return reached._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=given_up)
    wanted = target - kept
    # partitions that others still own are assigned when they have revoked them
    free = wanted - group.holders(but=said.member_id)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    # the previous epoch, so that a member whose answer was lost can continue
    previous = reached.epoch if reached.epoch != group.target_epoch else reached.previous_epoch
    return Reached(group.target_epoch, previous, state, kept | free)
