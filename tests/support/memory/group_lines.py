"""Lines of group scripts: values as text, both ways."""

from __future__ import annotations

from collections.abc import Iterable

from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact, MemberState, owned_of
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply
from broker.groups.core.consumer_protocol.server_assignors import TopicIdPartition
from broker.groups.core.group_messages import (
    CodeReply,
    CommittedOffset,
    GroupChanged,
    GroupRecord,
    GroupRemoved,
    GroupStored,
    JoinReply,
    LeaveReply,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    PartitionsReply,
    Reply,
    SyncReply,
    TimerKey,
    TransactionEnded,
)
from broker.groups.core.group_states import Group
from wire.batches.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetAssignment,
    TargetEpoch,
)
from wire.protocol.ids import TopicPartition


def values_of(words: tuple[str, ...]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def partition_of(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def partition_text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def offsets_in(values: dict[str, str]) -> dict[TopicPartition, CommittedOffset]:
    metadata, retention_ms = values.pop("metadata", ""), int(values.pop("retention", "-1"))
    offsets = {}
    for name, text in values.items():
        offset, _, epoch = text.partition("@")
        offsets[partition_of(name)] = CommittedOffset(int(offset), int(epoch or -1), metadata, retention_ms)
    return offsets


def key_text(key: TimerKey) -> str:
    return " ".join((key.kind.value, key.group_id, *([key.member_id] if key.member_id else [])))


def group_text(group: Group) -> str:
    """A group in one line: * leads, ? is awaited in the sync, j and s wait for an answer."""
    members = []
    for member in group.members.values():
        marks = ("*" if member.member_id == group.leader else "") + ("?" if member.member_id in group.unsynced else "")
        marks += ("j" if member.join_token is not None else "") + ("s" if member.sync_token is not None else "")
        assignment = f"={member.assignment.decode(errors='replace')}" if member.assignment else ""
        members.append(f"{member.member_id}{marks}{assignment}")
    pending = f" pending {','.join(sorted(group.pending))}" if group.pending else ""
    return f"{group.group_id} {group.state.value} {group.generation} {group.protocol or '-'} [{' '.join(members)}]{pending}"


def record_line(record: GroupRecord) -> str:
    match record:
        case GroupStored(group=group):
            return f"store {group_text(group)}"
        case GroupChanged(group=group):
            return f"in memory {group_text(group)}"
        case GroupRemoved(group_id=group_id):
            return f"remove {group_id}"
        case OffsetCommitted(group_id=group_id, partition=partition, value=value):
            return f"store {group_id} {partition_text(partition)}={value.offset}@{value.leader_epoch}"
        case OffsetRemoved(group_id=group_id, partition=partition):
            return f"remove {group_id} {partition_text(partition)}"
        case OffsetPending(group_id=group_id, partition=partition, value=value):
            producer = f"producer {record.producer_id}/{record.producer_epoch}"
            return f"pending {group_id} {partition_text(partition)}={value.offset}@{value.leader_epoch} of {producer}"
        case ConsumerFact(key=key, value=value):
            return _consumer_line(key, value)
        case TransactionEnded(producer_id=producer_id, producer_epoch=producer_epoch, is_commit=is_commit):
            return f"{'commit' if is_commit else 'abort'} producer {producer_id}/{producer_epoch}"


def _owned_text(owned: Iterable[TopicIdPartition]) -> str:
    return " ".join(f"{found.topic_id[:1].decode()}-{found.partition}" for found in sorted(owned)) or "nothing"


def _consumer_line(key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> str:
    kinds = {3: "epoch", 5: "member", 6: "target epoch", 7: "target", 8: "current"}
    what = " ".join(word for word in (key.group, kinds[key.kind], key.member_id) if word)
    match value:
        case None:
            return f"remove {what}"
        case GroupEpoch(epoch=epoch) | TargetEpoch(epoch=epoch):
            return f"store {what} {epoch}"
        case TargetAssignment(partitions=partitions):
            return f"store {what} {_owned_text(owned_of(partitions))}"
        case CurrentAssignment():
            pending = f" gives up {_owned_text(owned_of(value.pending_revocation))}" if value.pending_revocation else ""
            state = MemberState(value.state).name.lower()
            return f"store {what} {value.epoch} {state} {_owned_text(owned_of(value.assigned))}{pending}"
        case MemberMetadata():
            return f"store {what} {','.join(value.topic_names)}{value.topic_regex or ''}"


def reply_text(reply: Reply) -> str:
    """A reply in one line."""
    match reply:
        case JoinReply():
            members = f" members {' '.join(member.member_id for member in reply.members)}" if reply.members else ""
            skip = " skip" if reply.skip_assignment else ""
            joined = (
                f" generation {reply.generation} {reply.protocol} leader {reply.leader or '-'}"
                if not reply.error
                else ""
            )
            return f"{reply.error.name} {reply.member_id}{joined}{skip}{members}".rstrip()
        case SyncReply():
            return (
                f"{reply.error.name} {reply.protocol} {reply.assignment.decode(errors='replace')}"
                if not reply.error
                else reply.error.name
            )
        case CodeReply():
            return reply.error.name
        case LeaveReply():
            return " ".join(error.name for error in reply.errors)
        case HeartbeatReply():
            if reply.error:
                return f"{reply.error.name}"
            owns = "" if reply.assigned is None else f" owns {_owned_text(reply.assigned)}"
            return f"{reply.member_id} epoch {reply.member_epoch}{owns}"
        case PartitionsReply():
            outcomes = [f"{partition_text(partition)} {error.name}" for partition, error in reply.errors.items()]
            return ", ".join(outcomes) or reply.error.name
