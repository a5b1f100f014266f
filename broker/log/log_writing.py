"""Writes to one partition's log: appends of leaders, followers and mirrors, and new segments.

An append writes a patched prefix and the untouched rest with one gathering write, never opening a
record.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode
from mypy_extensions import mypyc_attr

from broker.log.core.batch_checks import BatchRejected
from broker.log.core.producer_values import CompletedTransaction, SnapshotEntry
from broker.log.core.retention import (
    RELATIVE_OFFSET_MAX,
    roll_reason,
)
from broker.log.errors import StorageError
from broker.log.intake import AppendInfo, Intake, apply_replicated, found_again, take_from_producer
from broker.log.log_state import LogState
from broker.log.producer_replay import replay_batch
from broker.log.producer_snapshots import write_snapshot
from broker.log.segments.indexed_batches import PlacedBatch
from broker.log.segments.segment_creation import create_segment
from broker.log.segments.segment_names import SNAPSHOT_SUFFIX, file_name
from broker.log.segments.transaction_index import AbortedTransaction
from runtime.disk import Buffer
from wire.batches.record_batch import BatchHeader


@mypyc_attr(allow_interpreted_subclasses=True)
class WritableLog(LogState):
    """A log that takes batches."""

    # -- appending ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        is_from_client: bool = True,
        may_begin_transaction: bool = True,
    ) -> AppendInfo:
        """Check producers' batches, give them offsets and the leader epoch, and write them. All or
        nothing.

        Raises BatchRejected (nothing was written) or StorageError. A batch that the log already has
        is not written again: the answer has its original offsets. Without `is_from_client`
        (coordinators' batches, markers) limits and sequences are not checked. Without
        `may_begin_transaction` a transaction's first batch is refused.
        """
        self._durability.refuse_when_failed()
        # a later leader's batches may be here already; an older epoch behind them would hide from
        # followers where the logs differ
        if leader_epoch < self._epochs.latest:
            raise BatchRejected(
                ErrorCode.fenced_leader_epoch,
                f"leader epoch {leader_epoch}, the log is at {self._epochs.latest} already",
            )
        intake = take_from_producer(
            records,
            self._producers,
            self._limits,
            log_end_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            is_from_client=is_from_client,
            may_begin=may_begin_transaction,
        )
        if not intake.placed:
            return found_again(intake.answered, self._limits, log_start_offset=self.log_start_offset)
        first_offset = self.log_end_offset
        size_bytes = intake.size_bytes
        # as in Kafka, and with its error code: one append never spans two segments
        if size_bytes > self.config.segment_bytes:
            raise BatchRejected(
                ErrorCode.record_list_too_large,
                f"append of {size_bytes} bytes, segment.bytes is {self.config.segment_bytes}",
            )
        # bytes first: after a failed write, epochs and producers are unchanged, and the client may
        # try again
        self._write(intake, size_bytes, now_ms)
        # the epoch begins with its first record, also when the leadership began earlier
        self._epochs.assign(leader_epoch, first_offset)
        for change in intake.changes.values():
            self._producers.apply(change)
        for transaction in intake.completed:
            self._note_aborted(transaction)
        if intake.answered:
            first_offset = intake.answered[0].first_offset
        log_append_time_ms = now_ms if self._limits.is_log_append_time else -1
        last_offset = intake.next_offset - 1
        info = first_offset, last_offset, log_append_time_ms, self.log_start_offset, False, intake.record_count
        # the constructor of a named tuple is Python, and takes longer
        return tuple.__new__(AppendInfo, info)

    def append_replicated(self, records: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        """Write batches as they are, offsets and leader epochs included: for followers and mirrors.
        All or nothing.

        Holes between offsets are allowed, overlaps and older epochs are refused with BatchRejected.
        Without `now_ms` the batches' own timestamps decide when a segment is old enough to be
        rolled.
        """
        self._durability.refuse_when_failed()
        intake, headers = apply_replicated(
            records, log_end_offset=self.log_end_offset, latest_epoch=self._epochs.latest
        )
        placed = intake.placed
        # before the write: what follows may fail
        if intake.has_holes:
            self.has_new_holes = True
            if self.unsaved_holes_from < 0:
                self.unsaved_holes_from = self.log_end_offset
        self._write(intake, intake.size_bytes, placed[-1].max_timestamp if now_ms is None else now_ms)
        for position, header in headers:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._replay(records, position, header)
        return AppendInfo(
            first_offset=placed[0].base_offset,
            last_offset=placed[-1].last_offset,
            log_append_time_ms=-1,
            log_start_offset=self.log_start_offset,
            is_duplicate=False,
            record_count=intake.record_count,
        )

    def _write(self, intake: Intake, size_bytes: int, now_ms: int) -> None:
        # a dropped segment that a crash restored under its name would join this batch
        self.removals.settle()
        self._roll_before(intake.placed, size_bytes, now_ms)
        self._segments.active.append(intake.placed, intake.pieces, self.config.index_interval_bytes)
        self._segments.size_bytes += size_bytes
        # set after the write: readers on this loop never see an end without its bytes
        self.log_end_offset = intake.next_offset
        self._durability.note_append(now_ms)

    def _replay(self, records: Buffer, position: int, header: BatchHeader) -> None:
        with memoryview(records)[position : position + header.size_bytes] as content:
            aborted = replay_batch(self._producers, header, content)
        if aborted is not None:
            self._index_aborted(aborted)

    def _note_aborted(self, completed: CompletedTransaction) -> None:
        if completed.is_aborted:
            stable, first = self._producers.last_stable_offset_after(completed), completed.first_offset
            self._index_aborted(AbortedTransaction(completed.producer_id, first, completed.last_offset, stable))

    def _index_aborted(self, aborted: AbortedTransaction) -> None:
        try:
            self._segments.active.transactions.append(aborted)
            self._durability.note_names()
        except StorageError as failure:
            # the marker is in the log and its entry is not: readers would treat the records as
            # committed
            self._durability.failure = failure
            raise

    # -- rolling -----------------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one is older than segment.ms; for logs that get no
        writes.
        """
        self._durability.refuse_when_failed()
        facts = self._segments.active.active_facts(self.config.segment_index_bytes)
        reason = roll_reason(
            facts,
            self._roll_policy,
            incoming_bytes=0,
            last_offset=self.log_end_offset,
            timestamp_ms=now_ms,
            now_ms=now_ms,
        )
        if reason:
            self._roll(self.log_end_offset, now_ms)
        return bool(reason)

    def _roll_before(self, placed: list[PlacedBatch], size_bytes: int, now_ms: int) -> None:
        last = placed[-1]
        reason = roll_reason(
            self._segments.active.active_facts(self.config.segment_index_bytes),
            self._roll_policy,
            incoming_bytes=size_bytes,
            last_offset=last.last_offset,
            timestamp_ms=last.max_timestamp,
            now_ms=now_ms,
        )
        if reason:
            # a hole before the batch belongs to the new segment: segments join without a gap, on
            # which recovery relies
            is_reachable = last.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
            self._roll(self.log_end_offset if is_reachable else placed[0].base_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self.removals.settle()
        active = self._segments.active
        if active.size_bytes:
            # the indexes are written now: even a segment whose batches are flushed has something to
            # flush
            active.mark_dirty()
            active.become_inactive()
            self._write_snapshot(base_offset, self._producers.snapshot())
            self._segments.forget_reads_at_end()
        elif active.base_offset == base_offset:
            # the file with this name exists and is empty: it stays the active one
            return
        segment = create_segment(self.directory, base_offset, self._descriptors, self.config, now_ms=now_ms)
        self._durability.note_names()
        if not active.size_bytes:
            # a hole wider than a segment can span: the empty segment before it is useless
            self._segments.remove_from(len(self._segments) - 1)
            self.removals.add_now([active], now_ms)
        self._segments.add(segment)

    def _write_snapshot(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Durable with the next flush."""
        path = f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        write_snapshot(self._disk, path, entries)
        self._durability.note_names(path)
