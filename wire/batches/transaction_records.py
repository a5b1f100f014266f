"""Records of `__transaction_state`, and transaction markers, exactly as Apache Kafka lays them out,
so that its own tools read them.

A key is version 0: the transactional id. A value is written as version 1 (flexible; the newer
fields are tagged) and read in versions 0 and 1; a null value is a tombstone. A marker is the single
record of a control batch: key (version, type), value (version, coordinator epoch). Called by the
broker's transaction coordinator and by tools; `broker/transactions/core/transaction_states.py`
defines the meaning of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wire.batches.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from wire.batches.records import Record, encode_batch
from wire.batches.transaction_members import HEADER
from wire.protocol.byte_reader import Buffer, ByteReader, Malformed
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, tag_section
from wire.protocol.ids import NO_PRODUCER_ID

TRANSACTIONS_TOPIC: Final = "__transaction_state"


_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_CARRIED_TAG: Final = 10_000
"""A tag of our own, far above Kafka's tags; Kafka's tools skip tags that they do not know."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i").pack
_INT64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class TransactionValue(NamedTuple):
    """The stored state of a transactional id. `status` is Kafka's number of the state; partitions
    are None in the state Empty.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: Mapping[str, tuple[int, ...]] | None
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    is_carried: bool = False
    """A mirror wrote it: the producer is one of the other site."""


def encode_transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    return _INT16.pack(_KEY_VERSION) + string_bytes(transactional_id, flexible=False)


def decode_transaction_key(raw: Buffer) -> str | None:
    """The transactional id, None for a kind of record that is not described here. Raises
    Malformed.
    """
    reader = ByteReader(raw)
    return reader.string(flexible=False) if reader.int16() == _KEY_VERSION else None


def encode_transaction_value(value: TransactionValue) -> bytes:
    """The value of a transactional id's record."""
    parts = [_HEAD.pack(_VALUE_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.status)]
    partitions = value.partitions
    parts.append(count_bytes(None if partitions is None else len(partitions), flexible=True))
    for topic, indexes in (partitions or {}).items():
        parts += (string_bytes(topic, flexible=True), count_bytes(len(indexes), flexible=True))
        parts += (_INT32(index) for index in indexes)
        parts.append(NO_TAGS)
    parts.append(_TIMES.pack(value.last_update_ms, value.start_ms))
    parts.append(tag_section(*_tags(value)))
    return b"".join(parts)


def _tags(value: TransactionValue) -> Iterable[tuple[int, bytes]]:
    if value.previous_producer_id != NO_PRODUCER_ID:
        yield _PREVIOUS_PRODUCER_ID_TAG, _INT64.pack(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        yield _NEXT_PRODUCER_ID_TAG, _INT64.pack(value.next_producer_id)
    if value.client_version:
        yield _CLIENT_VERSION_TAG, _INT16.pack(value.client_version)
    if value.is_carried:
        yield _CARRIED_TAG, b""


def decode_transaction_value(raw: Buffer) -> TransactionValue:
    """The value of a transactional id's record, of version 0 or 1. Raises Malformed."""
    reader = ByteReader(raw)
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise Malformed(f"transaction value of version {version}; known: 0 to {_VALUE_VERSION}")
    is_flexible = version >= 1
    producer_id, producer_epoch, timeout_ms, status = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    count = reader.nullable_count(flexible=is_flexible, element_size_min=2)
    partitions = None if count is None else dict(_decode_topic(reader, is_flexible) for _ in range(count))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    value = TransactionValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        status=status,
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
    )
    return _with_tags(value, reader) if is_flexible else value


def _decode_topic(reader: ByteReader, is_flexible: bool) -> tuple[str, tuple[int, ...]]:
    topic = reader.string(flexible=is_flexible)
    indexes = tuple(reader.int32() for _ in range(reader.count(flexible=is_flexible, element_size_min=4)))
    if is_flexible:
        reader.skip_tags()
    return topic, indexes


def _with_tags(value: TransactionValue, reader: ByteReader) -> TransactionValue:
    for tag in reader.tags():
        match tag:
            case 0:
                value = value._replace(previous_producer_id=reader.int64())
            case 1:
                value = value._replace(next_producer_id=reader.int64())
            case 2:
                value = value._replace(client_version=reader.int16())
            case 10_000:
                value = value._replace(is_carried=True)
            case _:
                continue
    return value


def encode_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    members: bytes | None = None,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition; `members`:
    `wire/batches/transaction_members.py`.
    """
    headers = () if members is None else ((HEADER, members),)
    record = Record(_MARKER_KEY.pack(0, int(is_commit)), _MARKER_VALUE.pack(0, coordinator_epoch), now_ms, headers)
    return encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
    )


def decode_marker(record: Record) -> tuple[bool, int]:
    """Whether a marker's record commits, and the coordinator epoch in it. ValueError when it is no
    marker.
    """
    if record.key is None or record.value is None:
        raise ValueError("a marker has a key and a value")
    try:
        _, kind = _MARKER_KEY.unpack_from(record.key)
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    except struct.error as error:
        raise ValueError(f"not a marker: {error}") from error
    return kind == 1, coordinator_epoch
