"""The documents of API v2, of requests and responses."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from bridge.core.documents import RAW_NULL, read, stored_bytes
from bridge.core.media_types import EmbeddedFormat
from bridge.core.refusals import unprocessable

KeyValue = tuple[bytes | None, bytes | None, int | None]
"""Key, value and requested partition of a record."""


class _JsonRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: Raw = RAW_NULL
    value: Raw = RAW_NULL
    partition: int | None = None


class _BinaryRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None


class _JsonRecords(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_JsonRecord]


class _BinaryRecords(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_BinaryRecord]


def read_records(body: bytes, embedded: EmbeddedFormat) -> list[KeyValue]:
    """The records of a produce request. Raises Refused if the document has another structure, or no
    records.
    """
    found: list[KeyValue]
    match embedded:
        case EmbeddedFormat.JSON:
            found = [
                (stored_bytes(record.key), stored_bytes(record.value), record.partition)
                for record in read(body, _JsonRecords).records
            ]
        case EmbeddedFormat.BINARY:
            found = [(record.key, record.value, record.partition) for record in read(body, _BinaryRecords).records]
    if not found:
        raise unprocessable("records may not be empty")
    if any(partition is not None and not 0 <= partition < 2**31 for _, _, partition in found):
        raise unprocessable("partition must be 0 or more")
    return found


class ProducedRecord(msgspec.Struct):
    """The outcome for one record."""

    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None


class Produced(msgspec.Struct):
    """The answer to a produce request."""

    offsets: list[ProducedRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class JsonRecordRead(msgspec.Struct, gc=False):
    """A record of the json format in a response."""

    topic: str
    key: Raw
    value: Raw
    partition: int
    offset: int


class BinaryRecordRead(msgspec.Struct, gc=False):
    """A record of the binary format in a response; bytes are written as base64."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


class InstanceMade(msgspec.Struct):
    """A new consumer instance."""

    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """The topics of a subscription."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


class Place(msgspec.Struct, forbid_unknown_fields=True):
    """A partition."""

    topic: str
    partition: int


class Places(msgspec.Struct, forbid_unknown_fields=True):
    """Partitions."""

    partitions: list[Place]


class PlaceOffset(msgspec.Struct, forbid_unknown_fields=True):
    """An offset in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = ""


class PlaceOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets to commit or to seek to, and committed offsets."""

    offsets: list[PlaceOffset]
