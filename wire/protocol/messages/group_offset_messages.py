"""Two private messages: MirrorGroupOffsets, by which a mirror writes the offsets of several groups
at once, and CarriedOffsets, by which it learns which offsets an earlier daemon has written;
`wire/protocol/messages/private.py` has the table of all.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

MIRROR_GROUP_OFFSETS: Final = 20014
CARRIED_OFFSETS: Final = 20017


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredOffset:
    """The offset of a group in one partition; -1: the source has removed it."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    committed_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The committed offset."""
    committed_leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The leader epoch of the last record that was read; -1 without one."""
    committed_metadata: str = field(metadata={"kafka_type": "string"})
    """The metadata of the commit; of a removed offset, the offset that is to be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredGroup:
    """A group with the offsets to write."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: str = field(metadata={"kafka_type": "string"})
    """The group."""
    offsets: tuple[MirroredOffset, ...]
    """Its offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorGroupOffsetsRequest:
    """Offsets of groups that the broker coordinates, as the source has them."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    groups: tuple[MirroredGroup, ...]
    """Each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedOffset:
    """An offset that was not written, and why."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredGroupOutcome:
    """The outcome for one group: its own error, or the offsets that were not written."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NOT_COORDINATOR and other errors of the whole group, as a MirrorOffsetCommit gets them."""
    refused: tuple[RefusedOffset, ...]
    """Offsets that were not written; every other one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorGroupOffsetsResponse:
    """The outcome for each group."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(MIRROR_GROUP_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    outcomes: tuple[MirroredGroupOutcome, ...]
    """The outcomes in the order of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOffsetsRequest:
    """A question for groups that the broker coordinates."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CARRIED_OFFSETS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    group_ids: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    """The groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOffset:
    """An offset that a mirror of the link wrote at this epoch, and that is unchanged since."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CARRIED_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    committed_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The committed offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedGroup:
    """The carried offsets of one group."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CARRIED_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NOT_COORDINATOR and other errors of the whole group."""
    offsets: tuple[CarriedOffset, ...]
    """Its carried offsets; none if the group does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOffsetsResponse:
    """The carried offsets of each group."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CARRIED_OFFSETS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    groups: tuple[CarriedGroup, ...]
    """The groups in the order of the request."""
