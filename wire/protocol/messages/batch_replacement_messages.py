"""One of our private messages: `ReplaceBatches`; `wire/protocol/messages/private.py` has the table
of all.

A batch of a log whose bytes on the disk have changed is written again with the bytes that another
copy of the log has. The broker that has the damaged log decides whether they are the same batch
(`broker/replication/core/batch_replacement.py`). Error codes by partition: NOT_LEADER_OR_FOLLOWER
from a broker without a replica, UNKNOWN_TOPIC_OR_PARTITION as for clients, INCONSISTENT_TOPIC_ID
for another topic of that name, INVALID_RECORD where a batch is not replaced (the message says why),
POLICY_VIOLATION where the quarantine has no room for the damaged bytes, KAFKA_STORAGE_ERROR when
the disk failed.
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
from kio.static.primitive import Records, i16, i32

REPLACE_BATCHES: Final = 20011


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBatchesPartition:
    """Whole batches of one partition."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPLACE_BATCHES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    """The topic's id."""
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    records: Records | None = field(metadata={"kafka_type": "records"})
    """The batches, each for the place of the one with its base offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBatchesRequest:
    """Sound bytes for batches that are damaged on the broker's disk."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPLACE_BATCHES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    reason: str = field(metadata={"kafka_type": "string"})
    """The reason in a sentence; the broker keeps it with the damaged bytes."""
    partitions: tuple[ReplaceBatchesPartition, ...]
    """Each partition with damaged batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBatchesOutcome:
    """The outcome for one partition's batches."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPLACE_BATCHES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when every batch is whole on the disk."""
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """A sentence for the operator."""
    entries: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    """Names of the quarantine's entries with the damaged bytes; none for batches that were whole
    already.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBatchesResponse:
    """The outcome by partition."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPLACE_BATCHES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    outcomes: tuple[ReplaceBatchesOutcome, ...]
    """Each partition of the request."""
