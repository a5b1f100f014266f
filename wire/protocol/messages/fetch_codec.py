"""Fetch responses, written by hand for all versions that kio describes (4 to 18): parts to send for
servers, views for clients.

A server's response is a list of parts, in which the records are the caller's own object (bytes, or
a piece of a file for sendfile). A client gets the records as slices of the received frame. One set
of types serves all versions. A property test holds the bytes against kio's for every version.
Requests: wire/client/requests/fetch_requests.py.

Topics carry names up to version 12 and ids from 13 on; the other one is empty.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, tag_section, uuid_bytes
from wire.protocol.messages.leader_hints import (
    NO_HINT,
    LeaderHint,
    NodeEndpoint,
    leader_hint_bytes,
    node_endpoints_bytes,
    read_leader_hint,
    read_node_endpoints,
)

API_KEY: Final = 1
LOWEST_VERSION: Final = 4
HIGHEST_VERSION: Final = 18
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13

_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_NODE_ENDPOINTS_FROM: Final = 16

_PARTITION_START: Final = struct.Struct(">ihqq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_TWO_INT64: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")
_SNAPSHOT: Final = struct.Struct(">qi")
_ABORTED_SIZE_MIN: Final = 16
_PARTITION_SIZE_MIN: Final = 24


class RecordsElsewhere(Protocol):
    """Records that are not in memory: the writer only asks how many bytes they are and passes the
    object on.
    """

    @property
    def length(self) -> int:
        """Bytes that will be sent instead."""
        ...


Part: TypeAlias = Buffer | RecordsElsewhere


class AbortedTransaction(NamedTuple):
    """An aborted transaction whose records lie among those fetched."""

    producer_id: int
    first_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and where it ends: a follower truncates by it."""

    epoch: int = -1
    end_offset: int = -1


class SnapshotId(NamedTuple):
    """A KRaft snapshot; of no use outside of Kafka's own quorum, but part of the message."""

    end_offset: int = -1
    epoch: int = -1


NO_EPOCH_END: Final = EpochEnd()
NO_SNAPSHOT: Final = SnapshotId()


class PartitionFetched(NamedTuple):
    """A Fetch response's fields of one partition. `records` None is null on the wire; a parsed one
    is never RecordsElsewhere.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Part | None = b""
    diverging_epoch: EpochEnd = NO_EPOCH_END
    current_leader: LeaderHint = NO_HINT
    snapshot_id: SnapshotId = NO_SNAPSHOT


class TopicFetched(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionFetched]


class FetchResponse(NamedTuple):
    """A Fetch response of any version; what a version does not know is left out."""

    topics: Sequence[TopicFetched]
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def fetch_response_parts(response: FetchResponse, version: int) -> tuple[list[Part], int]:
    """The response's body as parts to send one after the other, and the bytes that they will be on
    the wire.
    """
    flexible = version >= FLEXIBLE_FROM
    pending = bytearray(_INT32.pack(response.throttle_time_ms))
    if version >= _SESSIONS_FROM:
        pending += _INT16.pack(response.error_code) + _INT32.pack(response.session_id)
    pending += count_bytes(len(response.topics), flexible=flexible)
    parts: list[Part] = []
    size = 0
    for topic in response.topics:
        pending += topic_bytes(topic.name, topic.topic_id, version)
        pending += count_bytes(len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            records = partition.records
            records_size = _size_of(records)
            pending += _partition_start_bytes(partition, version)
            pending += count_bytes(records_size, flexible=flexible)
            if records_size and records is not None:
                parts += (pending, records)
                size += len(pending) + records_size
                pending = bytearray()
            if flexible:
                pending += _partition_tags(partition)
        if flexible:
            pending += NO_TAGS
    if flexible:
        has_endpoints = version >= _NODE_ENDPOINTS_FROM and response.node_endpoints
        pending += tag_section((0, node_endpoints_bytes(response.node_endpoints))) if has_endpoints else NO_TAGS
    if pending:
        parts.append(pending)
    return parts, size + len(pending)


def _size_of(records: Part | None) -> int | None:
    if records is None:
        return None
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.length


def _partition_start_bytes(partition: PartitionFetched, version: int) -> bytes:
    """Encode the fields in front of the records' length."""
    flexible = version >= FLEXIBLE_FROM
    start = _PARTITION_START.pack(*partition[:4])
    if version >= _LOG_START_FROM:
        start += _INT64.pack(partition.log_start_offset)
    aborted = partition.aborted_transactions
    start += count_bytes(None if aborted is None else len(aborted), flexible=flexible)
    if aborted:
        tags = NO_TAGS if flexible else b""
        start += b"".join(_TWO_INT64.pack(*transaction) + tags for transaction in aborted)
    if version >= _PREFERRED_REPLICA_FROM:
        start += _INT32.pack(partition.preferred_read_replica)
    return start


def _partition_tags(partition: PartitionFetched) -> bytes:
    if partition[8:] == (NO_EPOCH_END, NO_HINT, NO_SNAPSHOT):
        return NO_TAGS
    tagged = []
    if partition.diverging_epoch != NO_EPOCH_END:
        tagged.append((0, _EPOCH_END.pack(*partition.diverging_epoch) + NO_TAGS))
    if partition.current_leader != NO_HINT:
        tagged.append((1, leader_hint_bytes(partition.current_leader)))
    if partition.snapshot_id != NO_SNAPSHOT:
        tagged.append((2, _SNAPSHOT.pack(*partition.snapshot_id) + NO_TAGS))
    return tag_section(*tagged)


def parse_fetch_response(frame: Buffer, position: int, version: int) -> FetchResponse:
    """The response whose body begins at `position`; records are memoryviews of `frame`. Raises
    Malformed.
    """
    reader = ByteReader(frame, position)
    flexible = version >= FLEXIBLE_FROM
    throttle_time_ms = reader.int32()
    error_code = session_id = 0
    if version >= _SESSIONS_FROM:
        error_code, session_id = reader.int16(), reader.int32()
    topics = []
    for _ in range(reader.count(flexible=flexible, element_size_min=3 if flexible else 6)):
        name, topic_id = read_topic(reader, version)
        count = reader.count(flexible=flexible, element_size_min=_PARTITION_SIZE_MIN)
        partitions = [_read_partition(reader, version) for _ in range(count)]
        if flexible:
            reader.skip_tags()
        topics.append(TopicFetched(name, topic_id, partitions))
    endpoints: Sequence[NodeEndpoint] = ()
    if flexible:
        for tag in reader.tags():
            if tag == 0 and version >= _NODE_ENDPOINTS_FROM:
                endpoints = read_node_endpoints(reader)
    return FetchResponse(topics, throttle_time_ms, error_code, session_id, endpoints)


def _read_partition(reader: ByteReader, version: int) -> PartitionFetched:
    flexible = version >= FLEXIBLE_FROM
    index, error_code, high_watermark, last_stable = reader.int32(), reader.int16(), reader.int64(), reader.int64()
    log_start_offset = reader.int64() if version >= _LOG_START_FROM else -1
    aborted = _read_aborted(reader, flexible=flexible)
    preferred_replica = reader.int32() if version >= _PREFERRED_REPLICA_FROM else -1
    records = reader.nullable_blob(flexible=flexible)
    partition = PartitionFetched(
        partition_index=index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        log_start_offset=log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=preferred_replica,
        records=records,
    )
    return _with_tags(partition, reader) if flexible else partition


def _with_tags(partition: PartitionFetched, reader: ByteReader) -> PartitionFetched:
    for tag in reader.tags():
        if tag == 0:
            partition = partition._replace(diverging_epoch=EpochEnd(reader.int32(), reader.int64()))
            reader.skip_tags()
        elif tag == 1:
            partition = partition._replace(current_leader=read_leader_hint(reader))
        elif tag == 2:
            partition = partition._replace(snapshot_id=SnapshotId(reader.int64(), reader.int32()))
            reader.skip_tags()
    return partition


def _read_aborted(reader: ByteReader, *, flexible: bool) -> list[AbortedTransaction] | None:
    count = reader.nullable_count(flexible=flexible, element_size_min=_ABORTED_SIZE_MIN)
    if count is None:
        return None
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(reader.int64(), reader.int64()))
        if flexible:
            reader.skip_tags()
    return aborted


def read_topic(reader: ByteReader, version: int) -> tuple[str, UUID | None]:
    """Name and id of a topic in a Fetch message; one of them, by version."""
    if version >= TOPIC_IDS_FROM:
        return "", reader.nullable_uuid()
    return reader.string(flexible=version >= FLEXIBLE_FROM), None


def topic_bytes(name: str, topic_id: UUID | None, version: int) -> bytes:
    """Name or id of a topic in a Fetch message, by version."""
    if version >= TOPIC_IDS_FROM:
        return uuid_bytes(topic_id)
    return string_bytes(name, flexible=version >= FLEXIBLE_FROM)
