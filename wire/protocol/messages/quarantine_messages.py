"""Two of our private messages: `QuarantineRecords` and `Quarantine`;
`wire/protocol/messages/private.py` has
the table of all.

QuarantineRecords has a passive site's leaders keep the ends of logs, in the name of a link's
mirror, before the copies are deleted or truncated. Error codes by partition: those of MirrorAppend
for the link, the role and the topic, POLICY_VIOLATION if the records do not fit (the message names
a remedy), OFFSET_OUT_OF_RANGE for a truncation below the log's start or above its end,
KAFKA_STORAGE_ERROR if the disk failed. Quarantine lists, reads and deletes what one broker keeps.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

QUARANTINE_RECORDS: Final = 20007
QUARANTINE: Final = 20008

LIST, READ, DELETE = 0, 1, 2
"""Actions of a Quarantine request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecordsPartition:
    """One partition whose end is to be kept."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE_RECORDS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The broker keeps the records from this offset on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecordsTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE_RECORDS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    """The copy's id."""
    partitions: tuple[QuarantineRecordsPartition, ...]
    """Each partition of which something is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecordsRequest:
    """Ends of logs that are about to be removed."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE_RECORDS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    reason: str = field(metadata={"kafka_type": "string"})
    """The reason, in a sentence."""
    topics: tuple[QuarantineRecordsTopic, ...]
    """Each topic of which something is kept."""
    must_truncate: bool = field(metadata={"kafka_type": "bool", "tag": 0}, default=False)
    """True: what is kept is removed from the copies. Brokers that do not know the field keep the
    records and leave the copies as they are.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecordsOutcome:
    """The outcome for one partition's records."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE_RECORDS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when the records are on disk."""
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """A sentence for the operator."""
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The entry's name; empty when nothing was to be kept."""
    log_end_offset: i64 = field(metadata={"kafka_type": "int64", "tag": 0}, default=i64(-1))
    """The end of the truncated copy; -1 when it was not truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecordsResponse:
    """The outcome by partition."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE_RECORDS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    outcomes: tuple[QuarantineRecordsOutcome, ...]
    """Each partition of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequest:
    """A request to list or read the entries of one broker, or to delete an entry."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    action: i8 = field(metadata={"kafka_type": "int8"})
    """LIST, READ or DELETE."""
    name: str = field(metadata={"kafka_type": "string"})
    """The entry that is read or deleted; empty to list all."""
    position: i64 = field(metadata={"kafka_type": "int64"})
    """The byte from which to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """One partition's entry in the quarantine of a broker; `broker/replication/quarantine.py`
    explains the fields.
    """

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata={"kafka_type": "string"})
    """Unique at its broker."""
    kind: str = field(metadata={"kafka_type": "string"})
    """reset, reinstated or truncated."""
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partition: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The first offset that is kept; -1 for an empty entry."""
    end_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The offset behind the last one."""
    size_bytes: i64 = field(metadata={"kafka_type": "int64"})
    """Bytes of the batches."""
    topic_id: str = field(metadata={"kafka_type": "string"})
    """The id of the topic as text; empty where it is not known."""
    at_ms: i64 = field(metadata={"kafka_type": "int64"})
    """The time of the entry, Unix ms."""
    reason: str = field(metadata={"kafka_type": "string"})
    """The reason, in a sentence."""
    origin_site: str = field(metadata={"kafka_type": "string"})
    """The site whose log had the records; empty where it is not known."""
    link: str = field(metadata={"kafka_type": "string"})
    """The link whose copy was deleted; empty for truncated records."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """Its epoch then; -1 for truncated records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineResponse:
    """RESOURCE_NOT_FOUND for a name that is not there, KAFKA_STORAGE_ERROR when the disk failed."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(QUARANTINE)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when it was done."""
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """A sentence for the operator."""
    entries: tuple[QuarantineEntry, ...] = ()
    """The entries, for LIST."""
    records: bytes | None = field(metadata={"kafka_type": "bytes"}, default=None)
    """The bytes from the position on, for READ; empty at the end."""
