"""The state that a partition keeps of one producer, and the changes and refusals of its batches."""

from __future__ import annotations

from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.core.batch_checks import BatchRejected
from wire.protocol.ids import NO_EPOCH

SEQUENCE_MAX: Final = 2**31 - 1


class OutOfOrderSequence(BatchRejected):
    """A gap, or a repetition older than the remembered batches."""

    def __init__(self, producer_id: int, reason: str) -> None:
        super().__init__(ErrorCode.out_of_order_sequence_number, reason)
        self.producer_id = producer_id


class PrecedingBatchPending(BatchRejected):
    """A gap that will close: batches before this one are, or may be, in flight.

    The code is one after which every client retries, because no better one exists.
    OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka begin a new epoch and send its unanswered
    batches again under it, although the log may have them under the old epoch.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.not_enough_replicas, reason)


class InvalidProducerEpoch(BatchRejected):
    """A producer that was fenced by a newer epoch."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.invalid_producer_epoch, reason)


class WrittenBatch(NamedTuple):
    """A batch that a producer wrote."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX if self.last_sequence >= 0 else -1

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class SnapshotEntry(NamedTuple):
    """One producer in the form of Kafka's snapshot file; -1 for missing values."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class Producer(Struct):
    """One producer of the partition: its last batches and its open transaction."""

    epoch: int = NO_EPOCH
    batches: tuple[WrittenBatch, ...] = ()
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    transaction_first_offset: int = -1


class ProducerChange(NamedTuple):
    """The state of one producer after a prepared batch."""

    producer_id: int
    producer: Producer
    completed: CompletedTransaction | None = None


class DuplicateSequence(NamedTuple):
    """The log already has the batch, at these offsets."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Marker(NamedTuple):
    """A transaction marker, read from a control batch."""

    is_commit: bool
    coordinator_epoch: int


def snapshot_entry(producer_id: int, producer: Producer) -> SnapshotEntry:
    """The producer as the snapshot file keeps it."""
    last = producer.batches[-1] if producer.batches else WrittenBatch(-1, -1, 0, -1)
    return SnapshotEntry(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.offset_delta,
        timestamp_ms=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_first_offset=producer.transaction_first_offset,
    )


def from_snapshot(entry: SnapshotEntry) -> Producer:
    """The producer from a snapshot file, with one remembered batch."""
    last = WrittenBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
    return Producer(
        epoch=entry.producer_epoch,
        # one remembered batch, as in Kafka's file: after a start, repetitions of the four before it
        # are refused
        batches=(last,) if entry.last_offset >= 0 else (),
        coordinator_epoch=entry.coordinator_epoch,
        last_timestamp_ms=entry.timestamp_ms,
        transaction_first_offset=entry.transaction_first_offset,
    )
