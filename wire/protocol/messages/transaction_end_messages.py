"""One of our private messages: `EndTransactions`, by which decided transactions reach the logs of
their partitions; `wire/protocol/messages/private.py` has the table of all.

A coordinator sends it to other brokers of its site in place of WriteTxnMarkers where a link carries
the topics: the markers then say which partitions the transaction has
(`wire/batches/transaction_members.py`). A failover sends it with the link's name and epoch, to the
leaders of the promoted site before that site takes writes. Errors by partition are those of
WriteTxnMarkers; with a link also UNKNOWN_LEADER_EPOCH and FENCED_LEADER_EPOCH for another link
epoch, NOT_LEADER_OR_FOLLOWER where the site takes writes already or is not active.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

END_TRANSACTIONS: Final = 20013


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(END_TRANSACTIONS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partition_indexes: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """Partitions that get the marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """One decided transaction."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(END_TRANSACTIONS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    producer_id: i64 = field(metadata={"kafka_type": "int64"})
    """The producer id."""
    producer_epoch: i16 = field(metadata={"kafka_type": "int16"})
    """Its epoch."""
    is_commit: bool = field(metadata={"kafka_type": "bool"})
    """The decision."""
    coordinator_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The epoch of the coordinator that decided."""
    transaction_version: i8 = field(metadata={"kafka_type": "int8"})
    """As in WriteTxnMarkers version 2."""
    members: bytes | None = field(metadata={"kafka_type": "bytes"})
    """The header of the markers that names the transaction and its partitions; null for none."""
    topics: tuple[EndedTopic, ...]
    """The partitions by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionsRequest:
    """Decided transactions, for partitions that the broker leads."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(END_TRANSACTIONS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """The link of a failover; empty for a coordinator."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """Its epoch."""
    transactions: tuple[EndedTransaction, ...]
    """The transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEndOutcome:
    """The outcome for one partition of one transaction."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(END_TRANSACTIONS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    producer_id: i64 = field(metadata={"kafka_type": "int64"})
    """The producer id."""
    topic: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when every in-sync replica has the marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionsResponse:
    """The outcome by transaction and partition."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(END_TRANSACTIONS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    outcomes: tuple[TransactionEndOutcome, ...]
    """Each partition of the request."""
