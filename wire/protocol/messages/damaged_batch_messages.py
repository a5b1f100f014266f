"""One of our private messages: `DamagedBatches`; `wire/protocol/messages/private.py` has the table
of all.

A broker answers with the batches that its scrubber has found damaged on its own disks, those of
followers' replicas too, which no reader of the leader's log can see.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

DAMAGED_BATCHES: Final = 20015

BATCHES_MAX: Final = 1000
"""The maximum number of batches in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBatchesRequest:
    """A question about all replicas of the broker."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DAMAGED_BATCHES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBatch:
    """Bytes of one replica that differ from what was written; both offsets are included."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DAMAGED_BATCHES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    is_leader: bool = field(metadata={"kafka_type": "bool"})
    """True if the broker leads the partition."""
    base_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The first offset."""
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The last offset; where bytes are no batch, that of the part that cannot be read."""
    reason: str = field(metadata={"kafka_type": "string"})
    """What is wrong, for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBatchesResponse:
    """What the last passes over the broker's logs have found."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DAMAGED_BATCHES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    count: i32 = field(metadata={"kafka_type": "int32"})
    """The number of damaged batches; the answer names at most `BATCHES_MAX` of them."""
    batches: tuple[DamagedBatch, ...]
    """By topic, partition and offset."""
