"""The inputs and outputs of the transaction machine: commands, replies, records, effects. Values
only.

Commands are imperatives from producers (with a token that names the waiting request) or from the
shell (a timer that fired, markers that were written). Records are facts, all durable: they go to
`__transaction_state` and count once they are committed. Effects are acted upon after the records of
the same decision were applied.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.transactions.core.transaction_states import Transaction
from wire.protocol.ids import NO_EPOCH, NO_PRODUCER_ID, TopicPartition

# --- commands


class TransactionCommand(Struct, frozen=True, kw_only=True):
    """A command for one transactional id."""

    transactional_id: str


class InitProducer(TransactionCommand, frozen=True, kw_only=True):
    """Become the producer of the transactional id; the former one is fenced.

    A producer that names its id and epoch continues under the next epoch (KIP-360).
    `fresh_producer_id` is used when a new id is needed; without it the reply asks for one.
    """

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int | None = None


class ProducerCommand(TransactionCommand, frozen=True, kw_only=True):
    """A command of the producer under its id and epoch."""

    producer_id: int
    producer_epoch: int


class AddPartitions(ProducerCommand, frozen=True, kw_only=True):
    """The transaction is about to write to these partitions."""

    partitions: frozenset[TopicPartition]
    client_version: int = 0


class VerifyPartitions(ProducerCommand, frozen=True, kw_only=True):
    """Ask whether these partitions take part in the transaction; the command changes nothing."""

    partitions: frozenset[TopicPartition]


class EndTransaction(ProducerCommand, frozen=True, kw_only=True):
    """Commit or abort. With `is_bumped` (EndTxn from version 5 on) the producer continues under the
    next epoch.
    """

    is_commit: bool
    is_bumped: bool
    fresh_producer_id: int | None = None


class CarryProducer(ProducerCommand, frozen=True, kw_only=True):
    """A mirror says, at a passive site: this is the producer that the other site has under the
    transactional id.
    """

    timeout_ms: int


class Abandon(TransactionCommand, frozen=True, kw_only=True):
    """Another site coordinates now, and aborts in its logs the transactions that are open: abort
    them here too.
    """


class MarkersWritten(ProducerCommand, frozen=True, kw_only=True):
    """Every partition has the marker of this id and epoch."""


class TimeOut(TransactionCommand, frozen=True, kw_only=True):
    """The timeout of the transaction may have passed."""


class Resume(TransactionCommand, frozen=True, kw_only=True):
    """The log was replayed: go on where the former coordinator stopped."""


class Expire(TransactionCommand, frozen=True, kw_only=True):
    """Forget the transactional id if it was unused for long."""


# --- replies


class ProducerReply(Struct, frozen=True, kw_only=True):
    """The producer id and epoch to go on under. `needs_producer_id`: ask again with a fresh one."""

    error: ErrorCode = ErrorCode.none
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    needs_producer_id: bool = False


class AddReply(Struct, frozen=True, kw_only=True):
    """The outcome for the transaction, then by partition."""

    error: ErrorCode = ErrorCode.none
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


TransactionReply = ProducerReply | AddReply


# --- records


class TransactionStored(Struct, frozen=True, kw_only=True):
    """The transactional id, as of now."""

    transaction: Transaction


class TransactionRemoved(Struct, frozen=True, kw_only=True):
    """The removal of a transactional id."""

    transactional_id: str


TransactionRecord = TransactionStored | TransactionRemoved


# --- effects


class TransactionAnswer(Struct, frozen=True, kw_only=True):
    """Answer the request with this token; it may be gone."""

    token: int
    reply: TransactionReply


class StartTimeout(Struct, frozen=True, kw_only=True):
    """Send `TimeOut` after this delay."""

    transactional_id: str
    delay_ms: int


class CancelTimeout(Struct, frozen=True, kw_only=True):
    """The transaction is decided."""

    transactional_id: str


class WriteMarkers(Struct, frozen=True, kw_only=True):
    """Write the decision into the partitions, however long it takes, then send `MarkersWritten`."""

    transaction: Transaction


TransactionEffect = TransactionAnswer | StartTimeout | CancelTimeout | WriteMarkers


class TransactionDecision(Struct, frozen=True, kw_only=True):
    """Records to commit and apply, then effects to act upon; `reason` is one sentence for the
    log.
    """

    records: tuple[TransactionRecord, ...] = ()
    effects: tuple[TransactionEffect, ...] = ()
    reason: str = ""
