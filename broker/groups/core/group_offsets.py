"""Offsets of consumer groups: the rules for commits and for expiry. Pure.

`OffsetTable` is the committed state, which only records change; the functions beside it decide.
Offsets of an empty group expire together, a retention time after the group became empty (or after
the commit, if that is later). Offsets of a simple group (which never had members), and of topics
that no member of a stable consumer group subscribes to, expire one by one after their commit
(KIP-211, KIP-496). An offset whose commit named a retention time (OffsetCommit 2 to 4) expires
after that time. Offsets that a link's mirror writes here do not expire (`group_routing.py`): the
mirror removes those that the active site has removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.groups.core.group_membership import member_error
from broker.groups.core.group_messages import (
    Answer,
    CommitOffsets,
    CommittedOffset,
    CommitTransactionOffsets,
    Decision,
    GroupRecord,
    GroupRemoved,
    MirrorOffsets,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    PartitionsReply,
)
from broker.groups.core.group_states import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from broker.groups.core.group_turn import Turn
from wire.batches.consumer_protocol import subscribed_topics
from wire.batches.group_records import OffsetValue
from wire.protocol.byte_reader import Malformed
from wire.protocol.ids import NO_TIMESTAMP, TopicPartition

Offsets = Mapping[TopicPartition, OffsetValue]
Subscription = Callable[[str], bool]
"""A predicate on topic names: True if members of a group subscribe to the topic."""


class OffsetTable(Struct):
    """Committed offsets by group and partition."""

    _groups: dict[str, dict[TopicPartition, OffsetValue]] = field(default_factory=dict)

    def of(self, group_id: str) -> Offsets:
        """The group's offsets; empty if it has none."""
        return self._groups.get(group_id, {})

    def groups(self) -> Iterable[str]:
        """Groups that have offsets."""
        return self._groups.keys()

    def count(self) -> int:
        """The number of all offsets."""
        return sum(map(len, self._groups.values()))

    def put(self, group_id: str, partition: TopicPartition, value: OffsetValue) -> None:
        """An offset was committed."""
        self._groups.setdefault(group_id, {})[partition] = value

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """An offset was removed."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._groups[group_id]


# --- commits


def commit_error(turn: Turn, command: CommitOffsets) -> ErrorCode:
    """The error that refuses the whole commit; `none` when the commit is allowed."""
    group = turn.group
    is_anonymous = not command.member_id and command.group_instance_id is None
    is_transactional = isinstance(command, CommitTransactionOffsets)
    if command.generation < 0 and group.state is GroupState.EMPTY:
        # A consumer that has not joined, or a tool; with KIP-848 it still sends a member id.
        return ErrorCode.none
    if command.generation < 0 and is_anonymous:
        # Producers before KIP-447 do not send the member: the transactional id alone fences them.
        return ErrorCode.none if is_transactional else ErrorCode.unknown_member_id
    error = member_error(
        turn,
        member_id=command.member_id,
        group_instance_id=command.group_instance_id,
        generation=command.generation,
    )
    if error is ErrorCode.none and group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        # The member knows the generation, but its assignment is not decided yet.
        return ErrorCode.rebalance_in_progress
    return error


def commit(turn: Turn, command: CommitOffsets) -> list[GroupRecord]:
    """A client's commit: it is accepted except for offsets whose metadata is too long."""
    error = commit_error(turn, command)
    if error is not ErrorCode.none:
        turn.answer(turn.token, PartitionsReply(error=error))
        return []
    member = turn.group.members.get(command.member_id)
    if member is not None:
        # like a heartbeat, a commit shows that the member is alive
        turn.restart_session(member)
    return _take(turn, command.offsets)


def commit_without_group(command: CommitOffsets, token: int) -> Decision:
    """The refusal of a commit that names a generation of a group that does not exist."""
    is_classic = isinstance(command, CommitTransactionOffsets) or not command.knows_member_epochs
    error = ErrorCode.illegal_generation if is_classic else ErrorCode.group_id_not_found
    return Decision(effects=(Answer(token=token, reply=PartitionsReply(error=error)),))


def commit_pending(turn: Turn, command: CommitTransactionOffsets) -> list[GroupRecord]:
    """A producer's commit: as a client's, but it becomes valid at the end of the transaction."""
    return [
        OffsetPending(
            group_id=record.group_id,
            partition=record.partition,
            value=record.value,
            producer_id=command.producer_id,
            producer_epoch=command.producer_epoch,
        )
        for record in commit(turn, command)
        if isinstance(record, OffsetCommitted)
    ]


def mirror(turn: Turn, command: MirrorOffsets, offsets: Offsets) -> list[GroupRecord]:
    """A mirror's commit: refused while the group has members here. Offset -1 means that the active
    site has no offset; an offset that the group has committed here meanwhile stays.
    """
    # the members here are right: this site is active for them, or is becoming active
    if turn.group.members:
        turn.answer(turn.token, PartitionsReply(error=ErrorCode.non_empty_group))
        return []
    gone = [partition for partition, offset in command.offsets.items() if offset.offset < 0]
    kept = {partition: offset for partition, offset in command.offsets.items() if offset.offset >= 0}
    known = [one for one in gone if one in offsets and _is_known(offsets[one], command.offsets[one].metadata)]
    removed = removals(turn.group, known, offsets) if known else []
    # a group that gets offsets in the same request is not removed
    if kept:
        removed = [record for record in removed if not isinstance(record, GroupRemoved)]
    return [*removed, *_take(turn, kept, gone, carried_by=command.carried_by)]


def _is_known(value: OffsetValue, known: str) -> bool:
    """True if this is the offset that the mirror knows; mirrors of earlier releases name none."""
    return not known or known == str(value.offset)


def _take(
    turn: Turn,
    offsets: Mapping[TopicPartition, CommittedOffset],
    gone: Iterable[TopicPartition] = (),
    *,
    carried_by: str = "",
) -> list[GroupRecord]:
    """Records for the offsets that are accepted; results for them and for those that are `gone`."""
    records: list[GroupRecord] = []
    errors = dict.fromkeys(gone, ErrorCode.none)
    for partition, offset in offsets.items():
        if len(offset.metadata) > turn.limits.offset_metadata_bytes_max:
            errors[partition] = ErrorCode.offset_metadata_too_large
            continue
        errors[partition] = ErrorCode.none
        expires_ms = NO_TIMESTAMP if offset.retention_ms < 0 else turn.now_ms + offset.retention_ms
        value = OffsetValue(
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            turn.now_ms,
            expire_timestamp_ms=expires_ms,
            carried_by=carried_by,
        )
        records.append(OffsetCommitted(group_id=turn.group.group_id, partition=partition, value=value))
    turn.answer(turn.token, PartitionsReply(errors=errors))
    return records


# --- forgetting


def delete_offsets(
    turn: Turn,
    partitions: Iterable[TopicPartition],
    offsets: Offsets,
    is_subscribed: Subscription,
    pending: Collection[TopicPartition],
) -> list[GroupRecord]:
    """Remove some offsets, also `pending` ones of open transactions; those of topics that members
    subscribe to are kept.
    """
    group = turn.group
    # the subscription of another protocol type cannot be decoded: each topic may be in use
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        turn.answer(turn.token, PartitionsReply(error=ErrorCode.non_empty_group))
        return []
    errors = {
        partition: ErrorCode.group_subscribed_to_topic if is_subscribed(partition.topic) else ErrorCode.none
        for partition in partitions
    }
    turn.answer(turn.token, PartitionsReply(errors=errors))
    accepted = [partition for partition, error in errors.items() if error is ErrorCode.none]
    gone = [partition for partition in accepted if partition in offsets]
    void = [partition for partition in accepted if partition in pending and partition not in offsets]
    return [*voided(group, void), *removals(group, gone, offsets)]


def voided(group: Group, pending: Iterable[TopicPartition]) -> list[GroupRecord]:
    """Records that make pending offsets void: the end of their transaction does not bring them
    back.
    """
    return [OffsetRemoved(group_id=group.group_id, partition=partition) for partition in sorted(pending)]


def subscription(group: Group) -> Subscription:
    """The subscription of a classic group; every topic if one member's subscription cannot be
    decoded.
    """
    topics: set[str] = set()
    try:
        for member in group.members.values():
            for offered in member.protocols:
                topics.update(subscribed_topics(offered.metadata))
    except Malformed:
        # an unreadable subscription protects all topics
        return lambda _topic: True
    return topics.__contains__


def removals(group: Group, partitions: Iterable[TopicPartition], offsets: Offsets) -> list[GroupRecord]:
    """Records that remove the offsets, and the group if nothing of it remains."""
    removed = list(partitions)
    records: list[GroupRecord] = [OffsetRemoved(group_id=group.group_id, partition=partition) for partition in removed]
    is_left = len(removed) < len(offsets) or group.members or group.pending or group.state is not GroupState.EMPTY
    if not is_left:
        records.append(GroupRemoved(group_id=group.group_id))
    return records


def expired(
    group: Group, offsets: Offsets, *, now_ms: int, retention_ms: int, counted_from_ms: int = NO_TIMESTAMP
) -> list[TopicPartition]:
    """Offsets whose retention time has passed, if no member subscribes to their topics.

    The time is counted from `counted_from_ms` at the earliest, when this site began to coordinate
    the group.
    """
    is_settled = group.state is (GroupState.STABLE if group.members else GroupState.EMPTY)
    # while a group rebalances, its members may be about to subscribe to any topic
    if not is_settled or (group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE):
        return []
    empty_since_ms = NO_TIMESTAMP if group.members or group.is_simple else group.state_since_ms

    def is_over(value: OffsetValue) -> bool:
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - max(value.commit_timestamp_ms, empty_since_ms, counted_from_ms) >= retention_ms

    return [partition for partition, value in offsets.items() if is_over(value)]
