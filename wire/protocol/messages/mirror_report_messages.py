"""One of our private messages: `MirrorReports`; `wire/protocol/messages/private.py` has the table
of all.

A mirror reports each second about partitions without new records. In a session it names only what
has changed, so an idle link costs the same with ten partitions and with ten thousand. Both sides
number the partitions of a session in the order in which requests add them, from 0.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

MIRROR_REPORTS: Final = 20016
NEW_SESSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPartition:
    """A partition that enters the session, with its ends at both sites."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_REPORTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    log_end_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The end of the target's log."""
    source_high_watermark: i64 = field(metadata={"kafka_type": "int64"})
    """The source's high watermark, which an earlier MirrorAppend has reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_REPORTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    """The topic's id, equal at both sites."""
    partitions: tuple[ReportedPartition, ...]
    """Each partition that enters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReportsRequest:
    """The source has no new records of the session's partitions."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_REPORTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    session_id: i64 = field(metadata={"kafka_type": "int64"})
    """The session; 0 begins one."""
    source_seen_at_ms: i64 = field(metadata={"kafka_type": "int64"})
    """The time of the source's last answer, Unix ms on the mirror's clock."""
    removed: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    """The numbers of the partitions that leave the session."""
    added: tuple[ReportedTopic, ...]
    """The partitions that enter the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReportsResponse:
    """FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for another link epoch, and
    FETCH_SESSION_ID_NOT_FOUND for a session that the broker does not have: the session has ended.
    """

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_REPORTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE if the report counts for every partition of the session that is not in `ended`."""
    session_id: i64 = field(metadata={"kafka_type": "int64"})
    """The session."""
    ended: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    """The numbers of the partitions that have left the session, because their logs or roles are
    not as reported. The mirror reports about them with MirrorAppend, whose answer has the reason.
    """
