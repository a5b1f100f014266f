"""A partition that transactions write to: its batches, its producers, and what readers of committed
records see.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.core.producer_state import ProducerStates
from broker.log.core.producer_values import DuplicateSequence, Marker
from broker.replication.core.verification_guards import VerificationGuards
from wire.batches.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

WRITTEN_AT_MS = 1_000_000


class Written(NamedTuple):
    """A record, or a marker (`value` None), as it lies in a partition."""

    producer_id: int
    producer_epoch: int
    value: str | None
    is_commit: bool = False


class DataPartition:
    """A partition's records and producers' state; replays itself as a restarted broker does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[Written] = []
        self.producers = ProducerStates()
        self.guards = VerificationGuards()
        self.aborted: set[int] = set()

    def write(self, producer_id: int, epoch: int, value: str, *, may_begin: bool) -> ErrorCode:
        """The actions of a leader for one transactional record."""
        sequence = self._next_sequence(producer_id, epoch)
        header = self._header(producer_id, epoch, TRANSACTIONAL_BIT, sequence)
        try:
            change = self.producers.prepare_batch(header, len(self.records), is_checked=True, may_begin=may_begin)
        except BatchRejected as rejected:
            return rejected.code
        assert not isinstance(change, DuplicateSequence)
        self.records.append(Written(producer_id, epoch, value))
        self.producers.apply(change)
        return ErrorCode.none

    def mark(self, producer_id: int, epoch: int, *, is_commit: bool) -> ErrorCode:
        """The actions of a leader for a marker."""
        self.guards.withdraw(producer_id)
        header = self._header(producer_id, epoch, TRANSACTIONAL_BIT | CONTROL_BIT, -1)
        try:
            change = self.producers.prepare_marker(header, len(self.records), Marker(is_commit, 0), is_checked=True)
        except BatchRejected as rejected:
            return rejected.code
        if change.completed is not None and not is_commit:
            first = change.completed.first_offset
            self.aborted.update(
                offset
                for offset in range(first, len(self.records))
                if self.records[offset].producer_id == producer_id and self.records[offset].value is not None
            )
        self.records.append(Written(producer_id, epoch, None, is_commit))
        self.producers.apply(change)
        self.producers.advance_high_watermark(len(self.records))
        return ErrorCode.none

    def read_committed(self) -> list[str]:
        """The records that a read-committed consumer sees: up to the first open transaction,
        without those that were aborted.
        """
        unstable = self.producers.first_unstable_offset
        end = len(self.records) if unstable is None else unstable
        return [
            found.value
            for offset, found in enumerate(self.records[:end])
            if found.value is not None and offset not in self.aborted
        ]

    def _next_sequence(self, producer_id: int, epoch: int) -> int:
        known = self.producers.get(producer_id)
        return known.last_sequence + 1 if known is not None and known.producer_epoch == epoch else 0

    def _header(self, producer_id: int, epoch: int, attributes: int, sequence: int) -> BatchHeader:
        return BatchHeader(0, 49, 0, 2, 0, attributes, 0, WRITTEN_AT_MS, WRITTEN_AT_MS, producer_id, epoch, sequence, 1)
