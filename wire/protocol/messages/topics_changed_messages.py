"""One of our private messages: `TopicsChanged`; `wire/protocol/messages/private.py` has the table
of all.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

TOPICS_CHANGED: Final = 20009


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPartition:
    """One partition as it is now."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(TOPICS_CHANGED)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    leader_id: i32 = field(metadata={"kafka_type": "int32"})
    """Node id of the leader, -1 when there is none."""
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """Epoch of the leader."""
    partition_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The partition epoch; of two states with one leader epoch, the state with the higher partition
    epoch is newer.
    """
    replica_nodes: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """Node ids of all replicas."""
    isr_nodes: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """Node ids of the in-sync replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTopic:
    """One topic that was made, changed or deleted."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(TOPICS_CHANGED)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    """The topic's id: a topic that is made again under the same name has another one."""
    is_deleted: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the site has deleted the topic."""
    partitions: tuple[ChangedPartition, ...]
    """All partitions; none of a deleted topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChangedRequest:
    """The topics that a client's request has just changed at a site; clients may ask the peer's
    brokers next.
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(TOPICS_CHANGED)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    site: str = field(metadata={"kafka_type": "string"})
    """Name of the site that reports."""
    topics: tuple[ChangedTopic, ...]
    """Each topic that changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChangedResponse:
    """INVALID_REQUEST when no routed link joins the two sites."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(TOPICS_CHANGED)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when the broker answers its clients by the report from now on."""
