"""Two of our private messages, by which a mirror reports: `LinkProgress` and
`MirrorTransactionalIds`; `wire/protocol/messages/private.py` has the table of all.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes
from wire.protocol.ids import PartitionKey

LINK_PROGRESS: Final = 20005
MIRROR_TRANSACTIONAL_IDS: Final = 20006

_INT32: Final = struct.Struct(">i")
_REPORT: Final = struct.Struct(">iqB")  # index, acknowledged offset, no tags


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProgressPartition:
    """The end of the part of one partition that is safe at the target."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LINK_PROGRESS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    acknowledged_offset: i64 = field(metadata={"kafka_type": "int64"})
    """Every in-sync replica of the target has what is below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProgressTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LINK_PROGRESS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partitions: tuple[LinkProgressPartition, ...]
    """Each reported partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProgressRequest:
    """The mirror's report to the source's leaders about the acknowledgements of the target."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LINK_PROGRESS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    topics: tuple[LinkProgressTopic, ...]
    """Each reported topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProgressResponse:
    """FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for another link epoch; OFFSET_NOT_AVAILABLE when
    the reports of all partitions are needed; partitions not led here are passed over.
    """

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LINK_PROGRESS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when everything that concerns this broker was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredProducer:
    """The producer that the source has under a transactional id."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_TRANSACTIONAL_IDS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    transactional_id: str = field(metadata={"kafka_type": "string"})
    """The transactional id."""
    producer_id: i64 = field(metadata={"kafka_type": "int64"})
    """The producer id at the source."""
    producer_epoch: i16 = field(metadata={"kafka_type": "int16"})
    """Its epoch."""
    timeout_ms: i32 = field(metadata={"kafka_type": "int32"})
    """The time that its transactions may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTransactionalIdsRequest:
    """The source's transactional producers, sent by the mirror to the coordinators of the
    target.
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_TRANSACTIONAL_IDS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    producers: tuple[MirroredProducer, ...]
    """Producers of transactional ids that the broker coordinates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredProducerOutcome:
    """The outcome for one transactional id."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_TRANSACTIONAL_IDS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    transactional_id: str = field(metadata={"kafka_type": "string"})
    """The transactional id."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The error as clients get it, or CONCURRENT_TRANSACTIONS until this site has ended its own
    transaction; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH for another link epoch.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTransactionalIdsResponse:
    """The outcome for each transactional id."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_TRANSACTIONAL_IDS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    outcomes: tuple[MirroredProducerOutcome, ...]
    """The outcomes in the order of the request."""


def encode_link_progress(link: str, link_epoch: int, acknowledged: Iterable[tuple[PartitionKey, int]]) -> bytes:
    """The body of a LinkProgressRequest, version 0, by hand: each mirror of thousands of idle
    partitions sends all of them every few seconds.
    """
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in acknowledged:
        topics.setdefault(topic, []).append(_REPORT.pack(partition, offset, 0))
    parts = [string_bytes(link, flexible=True), _INT32.pack(link_epoch), count_bytes(len(topics), flexible=True)]
    for topic, reports in topics.items():
        parts += (string_bytes(topic, flexible=True), count_bytes(len(reports), flexible=True), *reports, NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)
