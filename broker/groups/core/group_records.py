"""Durable records of the group machine as records of `__consumer_offsets`, and back. Pure.

It translates between `core/group_messages.py` (the machine's values) and
`wire/batches/group_records.py` (the log's format). A tombstone is a null value.
"""

from __future__ import annotations

from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact
from broker.groups.core.group_messages import (
    GroupRemoved,
    GroupStored,
    KeyedRecord,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
)
from broker.groups.core.group_states import AssignmentProtocol, Group, GroupState, Member
from wire.batches.consumer_group_records import (
    decode_consumer_group_key,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
)
from wire.batches.group_records import (
    GroupKey,
    GroupValue,
    Headers,
    MemberValue,
    OffsetKey,
    carried_by,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    offset_headers,
)
from wire.batches.records import Record
from wire.protocol.ids import TopicPartition


def encode(record: KeyedRecord) -> Record:
    """The record in the log, without its timestamp."""
    match record:
        case GroupStored(group=group):
            return Record(encode_group_key(GroupKey(group.group_id)), encode_group_value(group_value(group)))
        case GroupRemoved(group_id=group_id):
            return Record(encode_group_key(GroupKey(group_id)), None)
        case (
            OffsetCommitted(group_id=group_id, partition=partition, value=value)
            | OffsetPending(group_id=group_id, partition=partition, value=value)
        ):
            key = encode_offset_key(OffsetKey(group_id, *partition))
            return Record(key, encode_offset_value(value), headers=offset_headers(value))
        case OffsetRemoved(group_id=group_id, partition=partition):
            return Record(encode_offset_key(OffsetKey(group_id, *partition)), None)
        case ConsumerFact(key=key, value=fact):
            return Record(encode_consumer_group_key(key), None if fact is None else encode_consumer_group_value(fact))


def decode(
    key: bytes, value: bytes | None, *, headers: Headers = (), producer: tuple[int, int] | None = None
) -> KeyedRecord | None:
    """The record, or None for a kind that is not stored; `producer`: id and epoch of a
    transactional batch. Raises Malformed.
    """
    match decode_key(key):
        case OffsetKey(group=group_id, topic=topic, partition=index):
            partition = TopicPartition(topic, index)
            if value is None:
                return OffsetRemoved(group_id=group_id, partition=partition)
            offset = decode_offset_value(value)
            if headers:
                offset = offset._replace(carried_by=carried_by(headers))
            if producer is not None:
                producer_id, producer_epoch = producer
                return OffsetPending(
                    group_id=group_id,
                    partition=partition,
                    value=offset,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                )
            return OffsetCommitted(group_id=group_id, partition=partition, value=offset)
        case GroupKey(group=group_id):
            if value is None:
                return GroupRemoved(group_id=group_id)
            return GroupStored(group=stored_group(group_id, decode_group_value(value)))
        case None:
            return _decode_consumer_fact(key, value)


def _decode_consumer_fact(key: bytes, value: bytes | None) -> ConsumerFact | None:
    found = decode_consumer_group_key(key)
    if found is None:
        return None
    return ConsumerFact(found, None if value is None else decode_consumer_group_value(found.kind, value))


def group_value(group: Group) -> GroupValue:
    """The stored value of a group."""
    return GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        state_timestamp_ms=group.state_since_ms,
        members=tuple(
            MemberValue(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def stored_group(group_id: str, value: GroupValue) -> Group:
    """The group as its record describes it: no request waits."""
    members = {
        member.member_id: Member(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=(AssignmentProtocol(value.protocol or "", member.subscription),),
            assignment=member.assignment,
        )
        for member in value.members
    }
    return Group(
        group_id=group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        state_since_ms=value.state_timestamp_ms,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader,
        members=members,
    )
