"""The assignment of a topic and the state of each of its partitions, below `/brokers/topics`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from wire.znodes.documents import Fields, MalformedZnode, encode_document
from wire.znodes.layout import partition_state_path, topic_path

TOPIC_ID_BYTES = 16


class TopicAssignment(Struct, frozen=True, kw_only=True):
    """Payload of `/brokers/topics/<topic>`: replicas by partition index, preferred leader first."""

    topic_id: bytes
    partitions: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removed_while_away: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """By partition: brokers that were not registered when a reassignment removed the partition from
    them, each with the zxid of the newest change of registrations before that.
    """


class StoredPartitionState(Struct, frozen=True, kw_only=True):
    """Payload of a partition's `state`; the znode's version is the partition epoch and is not in
    it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    registrations_zxid: int | None = None
    """The newest registration of a broker that the controller knew when it wrote (a broker epoch).
    The write may happen after that time: a controller that gets no responses from ZooKeeper may
    still write. None in states of Kafka's controllers.
    """


def encode_topic_id(topic_id: bytes) -> str:
    """Kafka's text form of a 16-byte uuid: URL-safe base64 without padding."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes, not {len(topic_id)}")
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def decode_topic_id(text: str) -> bytes:
    """The 16 bytes of a topic id; ValueError when `text` is not one."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"topic id {text!r} is not base64: {error}") from error
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"topic id {text!r} has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}")
    return topic_id


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Assignment in Kafka's version 3."""
    return encode_document(
        {
            "version": 3,
            "topic_id": encode_topic_id(assignment.topic_id),
            "partitions": _replica_lists(assignment.partitions),
            "adding_replicas": _replica_lists(assignment.adding_replicas),
            "removing_replicas": _replica_lists(assignment.removing_replicas),
            **_removals(assignment.removed_while_away),
        }
    )


def _removals(removed: Mapping[int, Mapping[int, int]]) -> dict[str, Any]:
    """The field that Kafka's format does not have; absent without a removal."""
    stored = {
        str(index): {str(node): zxid for node, zxid in sorted(removed[index].items())} for index in sorted(removed)
    }
    return {"antipode_removed_while_away": stored} if stored else {}


def _replica_lists(partitions: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(partitions[partition]) for partition in sorted(partitions)}


def decode_topic(topic: str, payload: bytes) -> TopicAssignment:
    """Assignment of `topic`; versions 1 and 2, which had no topic id, are refused."""
    fields = Fields.parse(topic_path(topic), payload)
    try:
        topic_id = decode_topic_id(fields.text("topic_id"))
    except MalformedZnode:
        raise
    except ValueError as error:
        fields.fail(str(error))
    return TopicAssignment(
        topic_id=topic_id,
        partitions=fields.replicas("partitions"),
        adding_replicas=fields.replicas("adding_replicas", {}),
        removing_replicas=fields.replicas("removing_replicas", {}),
        removed_while_away=fields.numbers_by_number("antipode_removed_while_away"),
    )


def decode_replicas(topic: str, payload: bytes) -> dict[int, tuple[int, ...]]:
    """Replicas by partition in an assignment of any version, with a topic id or without."""
    return Fields.parse(topic_path(topic), payload).replicas("partitions")


def encode_partition_state(state: StoredPartitionState) -> bytes:
    """Leader, epochs and in-sync replicas."""
    return encode_document(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **({} if state.registrations_zxid is None else {"registrations_zxid": state.registrations_zxid}),
        }
    )


def decode_partition_state(topic: str, partition: int, payload: bytes) -> StoredPartitionState:
    """State of one partition."""
    fields = Fields.parse(partition_state_path(topic, partition), payload)
    return StoredPartitionState(
        leader=fields.number("leader"),
        leader_epoch=fields.number("leader_epoch"),
        isr=fields.numbers("isr"),
        controller_epoch=fields.number("controller_epoch"),
        registrations_zxid=known if (known := fields.number("registrations_zxid", -1, bits=64)) >= 0 else None,
    )
