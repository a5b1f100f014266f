"""Idempotence and transactions of one partition: the last batches of each producer, and the open
transactions. Pure.

A batch is first *prepared* (`prepare_batch`, `prepare_marker`): it is checked against the state,
which does not change. When it is in the log, its `ProducerChange` is *applied*. Replay after a
crash prepares without checks and applies in the same way, so that both paths end in the same state.
Sequences run from 0 to 2^31 - 1 and wrap (KIP-98); the last five batches of a producer are
remembered so that a repeated request is answered with the original offsets.

Failover: a producer that was ahead of the mirror when its site died continues above the sequence
that the promoted log knows. `carry_over(before_offset)` lets each producer whose last batch lies
below that offset open such a gap once: the gap is the counted loss of the failover, and refusing it
would stop the producer permanently. The mark is an offset and not a flag, so it can be set again
from the leader epochs after a restart. A batch that follows a just-rejected one (`note_refused`) is
not such a gap: the client retries the rejected batch, and accepting the later one would claim that
both were written. The same applies to a producer that a new leader does not know
(`must_newcomers_begin`).

Invariants: (a) a producer's remembered batches are of one epoch and in order; (b) `ongoing` holds
exactly the producers with an open transaction, in order of first offset. Callers:
broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode
from mypy_extensions import mypyc_attr

from broker.log.core.batch_checks import BatchRejected
from broker.log.core.producer_values import (
    SEQUENCE_MAX,
    CompletedTransaction,
    DuplicateSequence,
    InvalidProducerEpoch,
    Marker,
    OutOfOrderSequence,
    PrecedingBatchPending,
    Producer,
    ProducerChange,
    SnapshotEntry,
    WrittenBatch,
    from_snapshot,
    snapshot_entry,
)
from wire.batches.record_batch import BatchHeader
from wire.protocol.ids import NO_EPOCH

# as many requests as Kafka lets an idempotent producer have in flight
REMEMBERED_BATCHES: Final = 5


REFUSALS_REMEMBERED: Final = 1000
"""Producers of one partition."""


_GAP_MAX: Final = 2**30
"""A sequence further ahead than this counts as behind, because sequences wrap."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}
        self._carried_over_before = -1
        self._refused: dict[int, tuple[int, int]] = {}
        """Producer id to epoch and first sequence of the earliest refused batch that has not been
        retried yet.
        """
        self.must_newcomers_begin = False
        """For now, refuse producers that are unknown here and do not begin with sequence 0.

        Right after a change of leaders an earlier batch of such a producer may still be in flight:
        Java's producer sends its next batch to the new leader while those before it wait for an
        answer of the old one. If this log accepted the later batch first, the earlier one could
        never be appended.
        """

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> SnapshotEntry | None:
        """The state of a producer; None if it is unknown."""
        producer = self._producers.get(producer_id)
        return None if producer is None else snapshot_entry(producer_id, producer)

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True while a transaction of this epoch is open here."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == producer_epoch and producer.transaction_first_offset >= 0

    @property
    def has_open_transactions(self) -> bool:
        """True if a transaction of a producer is open here."""
        return bool(self._ongoing)

    def open_transactions(self) -> list[SnapshotEntry]:
        """Producers with an open transaction."""
        return [snapshot_entry(producer_id, self._producers[producer_id]) for producer_id in self._ongoing]

    @property
    def has_markers(self) -> bool:
        """True if one of the producers has ended a transaction here."""
        return any(producer.coordinator_epoch >= 0 for producer in self._producers.values())

    # -- before the write --------------------------------------------------------------------------

    def prepare_batch(
        self,
        header: BatchHeader,
        first_offset: int,
        *,
        is_checked: bool,
        prepared: ProducerChange | None = None,
        may_begin: bool = True,
    ) -> ProducerChange | DuplicateSequence:
        """The change that a data batch at `first_offset` will make, or the result that it is a
        duplicate. Raises an error if the batch must be refused.

        `prepared` is the change of an earlier batch of the same producer in the same append.
        Without `is_checked` the batch is accepted unchecked (followers, mirrors, replay). Without
        `may_begin` the producer's coordinator has not confirmed the partition: a batch that would
        begin a transaction is refused (KIP-890).
        """
        producer = prepared.producer if prepared else self._producers.get(header.producer_id) or Producer()
        first_sequence, last_sequence = header.base_sequence, header.last_sequence
        if is_checked:
            duplicate = self._find_duplicate(producer, header.producer_epoch, first_sequence, last_sequence)
            if duplicate is not None:
                return DuplicateSequence(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms)
            self._check(header, producer)
            if not header.is_transactional:
                _check_no_transaction_is_open(header, producer)
            elif not may_begin:
                _check_transaction_is_open(header, producer)
        last_offset = first_offset + header.last_offset_delta
        # by `tuple.__new__`: the constructor of a named tuple is Python, and takes longer
        fields = last_sequence, last_offset, header.last_offset_delta, header.max_timestamp
        batch: WrittenBatch = tuple.__new__(WrittenBatch, fields)
        is_same_epoch = producer.epoch == header.producer_epoch
        transaction = producer.transaction_first_offset
        if header.attributes & 0x10 and transaction < 0:  # transactional
            transaction = first_offset
        changed = Producer(
            epoch=header.producer_epoch,
            # a new epoch restarts the sequences: batches of the old epoch would look like
            # duplicates
            batches=(*producer.batches[1 - REMEMBERED_BATCHES :], batch) if is_same_epoch else (batch,),
            coordinator_epoch=producer.coordinator_epoch,
            last_timestamp_ms=header.max_timestamp,
            transaction_first_offset=transaction,
        )
        return tuple.__new__(ProducerChange, (header.producer_id, changed, None))

    def prepare_marker(self, header: BatchHeader, offset: int, marker: Marker, *, is_checked: bool) -> ProducerChange:
        """The change that the transaction marker at `offset` makes."""
        producer = self._producers.get(header.producer_id) or Producer()
        if is_checked and header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"marker of producer {header.producer_id} has epoch {header.producer_epoch}, known is {producer.epoch}"
            )
        if is_checked and marker.coordinator_epoch < producer.coordinator_epoch:
            raise BatchRejected(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of producer {header.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"known is {producer.coordinator_epoch}",
            )
        completed = None
        if producer.transaction_first_offset >= 0:
            completed = CompletedTransaction(
                header.producer_id, producer.transaction_first_offset, offset, is_aborted=not marker.is_commit
            )
        # a marker with a higher epoch is the coordinator's fence: sequences of the old epoch are
        # void
        changed = Producer(
            epoch=header.producer_epoch,
            batches=producer.batches if producer.epoch == header.producer_epoch else (),
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp_ms=header.max_timestamp,
        )
        return ProducerChange(header.producer_id, changed, completed)

    def _check(self, header: BatchHeader, producer: Producer) -> None:
        first_sequence = header.base_sequence
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, known is {producer.epoch}"
            )
        refused = self._refused_before(header, producer)
        if refused is not None:
            # the code makes the client retry, and then the earlier batch comes first
            raise PrecedingBatchPending(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {first_sequence} before {refused}, "
                f"which was refused and must be sent again first"
            )
        if self.must_newcomers_begin and producer.epoch == NO_EPOCH and first_sequence != 0:
            raise PrecedingBatchPending(
                f"producer {header.producer_id} is not known to this new leader and sent sequence {first_sequence}: "
                f"earlier batches may still be in flight"
            )
        if header.producer_epoch != producer.epoch:
            # a client raises its epoch itself (KIP-360) and begins at 0; an unknown producer may
            # begin anywhere, its state has expired
            if first_sequence != 0 and producer.epoch != NO_EPOCH and not self._is_carried_over(producer):
                raise OutOfOrderSequence(
                    header.producer_id,
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first_sequence}",
                )
            return
        # after a marker that raised the epoch, any first sequence is right
        if not producer.batches:
            return
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if first_sequence == expected:
            return
        if self._is_carried_over(producer) and _is_behind(expected, first_sequence):
            return
        raise OutOfOrderSequence(
            header.producer_id,
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {first_sequence}, "
            f"expected {expected}",
        )

    def _find_duplicate(
        self, producer: Producer, epoch: int, first_sequence: int, last_sequence: int
    ) -> WrittenBatch | None:
        """The batch that the log has already, by its epoch and sequences."""
        if producer.epoch != epoch:
            return None
        # both ends must match: a batch of another size with a used sequence is an error, not a
        # repetition
        for batch in producer.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def _refused_before(self, header: BatchHeader, producer: Producer) -> int | None:
        """The sequence of a refused batch that is not in the log and precedes this one."""
        epoch, sequence = self._refused.get(header.producer_id, (NO_EPOCH, -1))
        if epoch != header.producer_epoch or not _is_behind(sequence, header.base_sequence):
            return None
        if (
            producer.epoch == epoch
            and producer.batches
            and not _is_behind(producer.batches[-1].last_sequence, sequence)
        ):
            return None  # another leader has appended it since
        return sequence

    def _is_carried_over(self, producer: Producer) -> bool:
        return not producer.batches or producer.batches[-1].last_offset < self._carried_over_before

    def note_refused(self, header: BatchHeader) -> None:
        """A client's batch was refused before any check (no leader, no writes, too few replicas):
        the client will retry it.
        """
        producer_id, first_sequence = header.producer_id, header.base_sequence
        if producer_id < 0:
            return
        known = self._refused.get(producer_id)
        if known is None or known[0] < header.producer_epoch:
            # oldest first: a producer that is removed here is only checked less strictly
            while len(self._refused) >= REFUSALS_REMEMBERED:
                del self._refused[next(iter(self._refused))]
            self._refused[producer_id] = header.producer_epoch, first_sequence
        elif known[0] == header.producer_epoch and _is_behind(first_sequence, known[1]):
            self._refused[producer_id] = header.producer_epoch, first_sequence

    # -- after the write ---------------------------------------------------------------------------

    def apply(self, change: ProducerChange) -> None:
        """Apply the change of a batch that is in the log."""
        producer_id, producer, completed = change
        self._producers[producer_id] = producer
        if self._refused:
            self._refused.pop(producer_id, None)
        if producer.transaction_first_offset >= 0:
            self._ongoing.setdefault(producer_id, producer.transaction_first_offset)
        elif producer_id in self._ongoing:
            del self._ongoing[producer_id]
        if completed is not None:
            # the marker is not replicated yet: a read-committed reader must not pass it before that
            self._unreplicated[completed.first_offset] = completed.last_offset

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset for a transaction index entry, after `completed` is over and
        replicated.
        """
        # other open transactions hold the stable offset back; readers of the index rely on this to
        # stop
        others = [first for producer_id, first in self._ongoing.items() if producer_id != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Completed transactions below the high watermark free the last stable offset."""
        if self._unreplicated:
            self._unreplicated = {f: last for f, last in self._unreplicated.items() if last >= high_watermark}

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that is open, or whose marker is not replicated."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min((*self._ongoing.values(), *self._unreplicated))

    # -- maintenance -------------------------------------------------------------------------------

    def carry_over(self, before_offset: int) -> None:
        """After a promotion, let a producer whose last batch lies below `before_offset` skip
        sequences once.

        It is not stored and can be repeated: after a restart it is called again with the offset at
        which the promotion's epoch began.
        """
        self._carried_over_before = max(self._carried_over_before, before_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for `expiration_ms` and have no open transaction; return
        their number.
        """
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            # an open transaction keeps its producer: its marker must find the first offset
            if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def snapshot(self) -> list[SnapshotEntry]:
        """All producers, for the snapshot file."""
        return [snapshot_entry(producer_id, producer) for producer_id, producer in self._producers.items()]

    def last_offsets(self) -> dict[int, int]:
        """Offset of each producer's last remembered record: the cleaner keeps these batches, empty
        if necessary.
        """
        return {pid: p.batches[-1].last_offset for pid, p in self._producers.items() if p.batches}

    def raised_epochs(self) -> dict[int, int]:
        """Epochs of the producers whose last entry here is a marker that raised the epoch: the
        cleaner keeps this marker, because no other batch has the epoch.
        """
        return {pid: p.epoch for pid, p in self._producers.items() if not p.batches}

    def restore(self, entries: Iterable[SnapshotEntry]) -> None:
        """Replace the state by a snapshot's."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        open_transactions = []
        for entry in entries:
            self._producers[entry.producer_id] = from_snapshot(entry)
            if entry.transaction_first_offset >= 0:
                # the snapshot file has no order; `ongoing` needs that of the first offsets
                open_transactions.append((entry.transaction_first_offset, entry.producer_id))
        self._ongoing.update((producer_id, first) for first, producer_id in sorted(open_transactions))


def _check_transaction_is_open(header: BatchHeader, producer: Producer) -> None:
    if producer.transaction_first_offset < 0 or producer.epoch != header.producer_epoch:
        raise BatchRejected(
            ErrorCode.invalid_txn_state,
            f"producer {header.producer_id} has no open transaction of epoch {header.producer_epoch} here",
        )


def _check_no_transaction_is_open(header: BatchHeader, producer: Producer) -> None:
    if producer.transaction_first_offset >= 0:
        raise BatchRejected(
            ErrorCode.invalid_txn_state,
            f"producer {header.producer_id} sent a batch outside of the transaction that it has open here",
        )


def _is_behind(sequence: int, other: int) -> bool:
    """True if `sequence` precedes `other`."""
    # sequences wrap: a difference below half of the range means ahead
    return 0 < (other - sequence) & SEQUENCE_MAX < _GAP_MAX
