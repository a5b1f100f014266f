"""One of our private messages: `MirrorAppend`; `wire/protocol/messages/private.py` has the table of
all.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

MIRROR_APPEND: Final = 20001
NO_DIVERGENCE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendPartition:
    """One partition's next batches, with the source's offsets at the time of the request."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    expected_log_end_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The offset at which the target's log must end, so that `records` continue it."""
    source_high_watermark: i64 = field(metadata={"kafka_type": "int64"})
    """The source's high watermark."""
    source_log_start_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The source's log start offset, which the target's follows."""
    source_seen_at_ms: i64 = field(metadata={"kafka_type": "int64"})
    """The time of the source's report, Unix ms on the mirror's clock."""
    records: Records | None = field(metadata={"kafka_type": "records"})
    """Whole batches, unchanged; empty or null only moves the other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    """The topic's id, equal at both sites; None is zero on the wire."""
    partitions: tuple[MirrorAppendPartition, ...]
    """Each partition to append to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendRequest:
    """Batches that continue mirrored logs at the passive site."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    topics: tuple[MirrorAppendTopic, ...]
    """Each topic to append to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendPartitionResponse:
    """The result of appending one partition's batches."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The errors are listed in `wire/protocol/messages/private.py`."""
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """A sentence for the log."""
    log_end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    """The end of the target's log now; -1 when the broker does not know it."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    """The link's epoch as the broker knows it; -1 for an unknown link."""
    divergence_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(NO_DIVERGENCE))
    """The highest leader epoch not above the first record's that the target's log holds; -1 without
    divergence.
    """
    divergence_end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    """The end of that epoch in the target's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendTopicResponse:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partitions: tuple[MirrorAppendPartitionResponse, ...]
    """Each partition of the request, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppendResponse:
    """The outcome by partition."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_APPEND)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    """The time that the mirror should wait before its next request."""
    topics: tuple[MirrorAppendTopicResponse, ...]
    """Each topic of the request, in its order."""
