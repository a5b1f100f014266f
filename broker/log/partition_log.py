"""The log of one partition: an ordered run of record batches on disk, in Apache Kafka's format.

Owns offsets, segments, leader epochs, producer state and the recovery point. Does not know roles,
replicas or who may read what: callers bring an end offset. All methods run on the event loop that
owns the log; only fsyncs run in a thread, and slices outlive the segments they point into. Batches
are moved as bytes: an append writes a patched prefix and the untouched rest with one gathering
write, never opening a record.

Invariants: (a) log_start_offset <= recovery_point <= log_end_offset and high_watermark between
start and end; (b) what `append_*` returned is in the log or a StorageError was raised and nothing
is; (c) offsets and leader epochs never go back.

Callers: broker/replication/replicas.py through broker/log/directories/log_store.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchLimits, BatchRejected
from broker.log.core.leader_epochs import EpochEnd, EpochStart
from broker.log.core.producer_state import CompletedTransaction, ProducerStates, SnapshotEntry
from broker.log.core.retention import (
    NOTHING_HELD,
    RELATIVE_OFFSET_MAX,
    RetentionHold,
    RetentionPolicy,
    RollPolicy,
    expired_segments,
    roll_reason,
)
from broker.log.descriptors import DescriptorCache
from broker.log.directories.checkpoints import PARTITION_METADATA, write_topic_id
from broker.log.directories.folder import Folder
from broker.log.directories.removal import PendingRemovals
from broker.log.durability import Durability
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.intake import AppendInfo, Intake, apply_replicated, found_again, take_from_producer
from broker.log.loading import create_segment, load_log, new_log
from broker.log.log_slice import LogSlice
from broker.log.producer_replay import replay_batch, restore_producers
from broker.log.producer_snapshots import write_snapshot
from broker.log.range_digests import RangeDigests
from broker.log.segment import SMALL_SEGMENT_BYTES, SNAPSHOT_SUFFIX, PlacedBatch, Segment, file_name
from broker.log.segments import Segments
from broker.log.source_seen import SourceSeen
from broker.log.timestamps import TimestampOffset, first_record_at
from broker.log.transaction_index import AbortedTransaction
from broker.log.truncation import Swaps, truncation
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Buffer
from wire.batches.record_batch import BatchHeader


class CorruptBatch(NamedTuple):
    """Bytes on the disk that are not what was written; both offsets are included."""

    base_offset: int
    last_offset: int
    reason: str


class PartitionLog:
    """One partition's log. Making it opens the directory, which exists.

    Unless `is_clean` everything from `recovery_point` on is checked: see `recovery`. With `is_new`
    the directory is empty. `roll_jitter` between 0 and 1 is the share of segment.jitter.ms that
    this log takes off segment.ms.
    """

    corrupt_batches: tuple[CorruptBatch, ...] = ()
    """The findings of the scrubber's last pass (`scrubbing.py`)."""
    scrubbed_at_ms: int = 0
    """The end of that pass, Unix ms; 0 before the first one of this process."""

    def __init__(
        self,
        directory: str,
        descriptors: DescriptorCache,
        config: LogConfig,
        *,
        topic: str,
        partition: int,
        topic_id: bytes | None = None,
        is_clean: bool = False,
        is_new: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        now_ms: int = 0,
        roll_jitter: float = 0.0,
        note_flush: NoteFlush = note_nothing,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self._descriptors = descriptors
        self._disk = descriptors.disk
        self._roll_jitter = roll_jitter
        loaded = (
            new_log(directory, descriptors, config, now_ms=now_ms)
            if is_new
            else load_log(
                directory,
                descriptors,
                config,
                is_clean=is_clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
            )
        )
        self.recovery = loaded.report
        self.held = NOTHING_HELD  # what the last retention pass kept beyond the topic's limits
        self.folder = Folder()
        self._segments = Segments(loaded.segments, self._disk)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self.log_end_offset = self._segments.active.next_offset
        self.log_start_offset = min(max(log_start_offset, self._segments.first.base_offset), self.log_end_offset)
        self._high_watermark = self.log_start_offset
        self.source = SourceSeen()
        checked_from = min(max(recovery_point, self.log_start_offset), self.log_end_offset)
        self._durability = Durability(
            self._disk,
            directory,
            self.folder,
            self._segments,
            self._epochs,
            end_offset=lambda: self.log_end_offset,
            recovery_point=self.log_end_offset if loaded.report.is_clean else checked_from,
            saved_epochs_version=loaded.saved_epochs_version,
            is_new=is_new,
            has_new_names=is_new or not is_clean,
            note_flush=note_flush,
        )
        self.removals = PendingRemovals(self._disk, directory, self.folder, sync_names=self._durability.sync_names)
        self._durability.settle = self.removals.settle
        self.digests = self._kept_digests(is_new=is_new)
        self.is_abandoned = False
        self.swaps = Swaps()
        self._snapshot_offset = loaded.snapshot_offset
        self.compacted_to = self.log_start_offset
        self._apply_config()

    def _kept_digests(self, *, is_new: bool) -> RangeDigests:
        return RangeDigests(
            self.directory,
            self._disk,
            self.folder,
            trusted_end=self._durability.recovery_point,
            is_new=is_new,
            is_clean=self.recovery.is_clean,
            note_names=self._durability.note_names,
        )

    # -- facts -------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return self._segments.size_bytes

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, -1 when there is none; it may have begun without a record
        yet.
        """
        return self._epochs.latest

    @property
    def max_timestamp_ms(self) -> int:
        """The largest record timestamp, -1 when there is none."""
        return max(segment.largest_timestamp()[0] for segment in self._segments.all)

    @property
    def recovery_point(self) -> int:
        """Offset below which everything survives a crash of the machine."""
        return self._durability.recovery_point

    @property
    def recovery_point_to_save(self) -> int:
        """The recovery point, or less while a truncation is under way."""
        return self._durability.recovery_point_to_save

    @property
    def failure(self) -> StorageError | None:
        """The reason why the log refuses everything; None while it works."""
        return self._durability.failure

    @property
    def truncation_count(self) -> int:
        """Grows whenever the log is cut at its end."""
        return self._durability.truncations

    def adopt_state(self, other: PartitionLog) -> None:
        """Be what `other`, a log with the same batches, is beyond its batches; `other` is not used
        any more.
        """
        self._epochs.clear()
        for entry in other.leader_epochs:
            self._epochs.assign(entry.epoch, entry.start_offset)
        self._producers = other.give_producers()
        self.compacted_to = other.compacted_to
        self.advance_high_watermark(other.high_watermark)
        self.advance_log_start_offset(min(other.log_start_offset, self._high_watermark))

    @property
    def leader_epochs(self) -> list[EpochStart]:
        """All leader epochs with their first offsets."""
        return self._epochs.entries

    def give_producers(self) -> ProducerStates:
        """The producers' state itself, for the log that takes this one's place."""
        return self._producers

    def save_recovery_point_by(self, save: Callable[[], None], save_in_thread: Callable[[], Awaitable[None]]) -> None:
        """Call one of these whenever the recovery point has to be lower on disk before anything
        else happens.
        """
        self._durability.save_recovery_point = save
        self._durability.save_recovery_point_in_thread = save_in_thread

    @property
    def high_watermark(self) -> int:
        """Offset up to which everything is replicated."""
        return self._high_watermark

    def advance_high_watermark(self, offset: int) -> None:
        """Take the high watermark that replication has reached, kept between the log's start and
        end.
        """
        self._high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self._producers.advance_high_watermark(self._high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Up to where read-committed readers may read: the first open transaction or the high
        watermark.
        """
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None:
            return self._high_watermark
        return min(max(first_unstable, self.log_start_offset), self._high_watermark)

    @property
    def segments(self) -> Segments:
        """The segments, for the cleaner and for checks."""
        return self._segments

    @property
    def producers(self) -> ProducerStates:
        """The last writes of each producer."""
        return self._producers

    def update_config(self, config: LogConfig) -> None:
        """Take a new configuration; it counts from the next append and the next retention pass."""
        if config.is_compacted and not self.config.is_compacted:
            self.digests.drop_from(0)
        self.config = config
        self._apply_config()

    def _apply_config(self) -> None:
        self._limits = BatchLimits.of(self.config)
        self._roll_policy = RollPolicy.of(self.config, jitter=self._roll_jitter)

    def assign_topic_id(self, topic_id: bytes, *, is_new: bool = False) -> None:
        """Write the topic id beside the log, durably; that of a log with `is_new` is durable with
        its first flush.
        """
        write_topic_id(self._disk, f"{self.directory}/{PARTITION_METADATA}", topic_id, is_new=is_new)
        self.topic_id = topic_id

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

        Raises BatchRejected (nothing was written) or StorageError. A batch that is in the log
        already is not written again: the answer carries its original offsets. Without
        `is_from_client` (coordinators' batches, markers) limits and sequences are not checked.
        Without `may_begin_transaction` a transaction's first batch is refused.
        """
        self._durability.refuse_when_failed()
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
        if size_bytes > self.config.segment_bytes:
            raise BatchRejected(
                ErrorCode.record_list_too_large,
                f"append of {size_bytes} bytes, segment.bytes is {self.config.segment_bytes}",
            )
        self._write(intake, size_bytes, now_ms)
        self._epochs.assign(leader_epoch, first_offset)
        for change in intake.changes.values():
            self._producers.apply(change)
        for transaction in intake.completed:
            self._note_aborted(transaction)
        if intake.answered:
            first_offset = intake.answered[0].first_offset
        log_append_time_ms = now_ms if self._limits.is_log_append_time else -1
        last_offset = intake.next_offset - 1
        return AppendInfo(
            first_offset, last_offset, log_append_time_ms, self.log_start_offset, False, intake.record_count
        )

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
        self._write(intake, intake.size_bytes, placed[-1].max_timestamp if now_ms is None else now_ms)
        for position, header in headers:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._replay(records, position, header)
        return AppendInfo(
            placed[0].base_offset, placed[-1].last_offset, -1, self.log_start_offset, False, intake.record_count
        )

    def _write(self, intake: Intake, size_bytes: int, now_ms: int) -> None:
        self.removals.settle()
        self._roll_before(intake.placed, size_bytes, now_ms)
        self._segments.active.append(intake.placed, intake.pieces, self.config.index_interval_bytes)
        self._segments.size_bytes += size_bytes
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
        except StorageError as failure:
            # the marker is in the log and its entry is not: readers would take the records for
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
            # a hole in front of the batch goes into the new segment: segments join without one,
            # which recovery relies on
            is_reachable = last.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
            self._roll(self.log_end_offset if is_reachable else placed[0].base_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self.removals.settle()
        active = self._segments.active
        if active.size_bytes:
            active.mark_dirty()
            active.become_inactive()
            self._write_snapshot(base_offset, self._producers.snapshot())
            self._segments.forget_reads_at_end()
        elif active.base_offset == base_offset:
            return
        segment = create_segment(self.directory, base_offset, self._descriptors, self.config, now_ms=now_ms)
        self._durability.note_names()
        if not active.size_bytes:
            # a hole wider than a segment reaches: the empty segment in front of it has nothing to
            # offer
            self._segments.remove_from(len(self._segments) - 1)
            self.removals.add_now([active], now_ms)
        self._segments.add(segment)

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int | None = None, has_minimum_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from `offset` on, below `end_offset`; empty at the end. The caller releases
        the slice.

        The first batch may begin before `offset`. It is returned whole, above `max_bytes`, when
        `has_minimum_one_batch`.
        """
        self._durability.refuse_when_failed()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        end = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        return self._segments.read(
            offset,
            max_bytes=max_bytes,
            end_offset=end if offset < end else -1,
            has_minimum_one_batch=has_minimum_one_batch,
        )

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Bytes that a reader at `offset` has before it up to `end_offset`: for min.bytes of
        delayed fetches.
        """
        if not self.log_start_offset <= offset < end_offset:
            return 0
        return self._segments.bytes_between(offset, min(end_offset, self.log_end_offset))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`; None when there is none."""
        self._durability.refuse_when_failed()
        found = self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        while found is not None:
            record = first_record_at(found.content, found.header, timestamp_ms, self.log_start_offset)
            if record is not None:
                return record._replace(leader_epoch=self._epochs.epoch_at(record.offset))
            found = self._segments.find_timestamp(timestamp_ms, found.header.next_offset)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the log's largest timestamp; None for a log without
        timestamps.
        """
        largest = self.max_timestamp_ms
        return self.offset_for_timestamp(largest) if largest >= 0 else None

    def aborted_transactions(self, from_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the range, for read-committed readers."""
        return self._segments.aborted_transactions(from_offset, end_offset)

    # -- leader epochs -----------------------------------------------------------------------------

    def start_leader_epoch(self, leader_epoch: int) -> None:
        """Note that this replica leads from the log's end on in `leader_epoch`."""
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """The largest epoch at or below `epoch` and the offset after its last record; both -1 when
        unknown.
        """
        return self._epochs.end_of(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when unknown."""
        return self._epochs.epoch_at(offset)

    def first_offset_since_epoch(self, leader_epoch: int) -> int | None:
        """The start of the first epoch at or above `leader_epoch`; None when there is none."""
        return self._epochs.start_at_or_above(leader_epoch)

    # -- cutting -----------------------------------------------------------------------------------

    def truncation(self, offset: int) -> AbstractAsyncContextManager[None]:
        """Truncate to `offset` or restart there in its body, once more asking whether to, and the
        loop is not held; see `truncation.py`.
        """
        return truncation(self, self._segments, self._durability, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop everything at or above `offset`, and the whole batch that spans it; leader epochs
        that wrote nothing below it too.

        Inside a segment it is durable with the next flush: a crash before that may bring the tail
        back, as it was; recovery cuts it where its leader epoch falls below that of batches
        appended since.
        """
        self._durability.refuse_when_failed()
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(offset)
            return
        self.swaps.finish()
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        keep = self._segments.last_kept(offset)
        # back to where the segment begins: the next one may begin at the cut, and recovery must
        # look at this one nevertheless
        self._durability.begin_truncation(self._segments.all[keep].base_offset)
        self._truncate_within(keep, offset)
        self.log_end_offset = self._segments.active.next_offset
        self._after_truncation()

    def _truncate_within(self, keep: int, offset: int) -> None:
        self.removals.drop(self._segments.remove_from(keep + 1))
        self._segments.active.truncate_to(offset)
        self._segments.active.mark_dirty()
        self._segments.forget_reads()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins and ends at `offset`, in the segment that
        has this name if there is one.
        """
        self._durability.refuse_when_failed()
        self.swaps.finish()
        self._durability.begin_truncation(offset)
        keep = self._segments.index_of(offset)
        if self._segments.all[keep].base_offset == offset:
            self._truncate_within(keep, offset)
            self.removals.drop(self._segments.remove_first(keep))
        else:
            self.removals.drop(self._segments.remove_from(0))
            self._segments.add(create_segment(self.directory, offset, self._descriptors, self.config, now_ms=0))
        self.log_start_offset = self.log_end_offset = offset
        self._epochs.clear()
        self._after_truncation()

    def _after_truncation(self) -> None:
        end = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, end)
        self._epochs.truncate_from_end(end)
        self._durability.end_truncation(end)
        self.compacted_to = min(self.compacted_to, end)
        self.digests.drop_from(end)
        self._high_watermark = min(max(self._high_watermark, self.log_start_offset), end)
        drop, segments = self.removals.drop_file, self._segments.all
        restored = restore_producers(self._disk, self.directory, segments, self._producers, end, remove=drop)
        self._snapshot_offset = restored.snapshot_offset
        if not self._durability.is_lowered:
            self.removals.settle()

    def advance_log_start_offset(self, offset: int) -> None:
        """Give up everything below `offset`, at most up to the high watermark; segments go with the
        next retention pass.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self._high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._durability.recovery_point = max(self._durability.recovery_point, offset)
            self._epochs.truncate_from_start(offset)

    def expire_segments(self, now_ms: int, *, is_copy: bool = False, hold: RetentionHold | None = None) -> str:
        """Give up what retention wants gone, by time, size and log start (a copy: log start alone),
        but for what is held; the reason, or empty. `held` says afterwards what is.

        `removals.put_aside` must follow; the files go after file.delete.delay.ms.
        """
        self._durability.refuse_when_failed()
        expiry = expired_segments(
            [segment.facts() for segment in self._segments.all],
            RetentionPolicy.of(self.config, is_copy=is_copy),
            now_ms=now_ms,
            high_watermark=self._high_watermark,
            log_start_offset=self.log_start_offset,
            hold=hold,
        )
        held = expiry.held
        self.held = held._replace(given_up_bytes=0) if held.given_up_bytes else held
        if not expiry.segment_count or self.swaps.is_under_way:
            return ""
        if expiry.segment_count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        following = self._segments.all[expiry.segment_count].base_offset
        self.advance_log_start_offset(min(following, self._high_watermark))
        self.removals.expire(self._segments, expiry.segment_count, now_ms + self.config.file_delete_delay_ms)
        self.held = expiry.held
        return expiry.reason

    # -- flushing ----------------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """True if flush.messages demands a flush before the last append is acknowledged."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def is_flush_due(self, now_ms: int) -> bool:
        """True if flush.ms demands a flush."""
        return self._durability.is_due(now_ms, self.config.flush_ms)

    @property
    def unflushed_since_ms(self) -> int | None:
        """The time of the oldest unflushed append; None when there is none."""
        return self._durability.unflushed_since_ms

    @property
    def has_unflushed_segments(self) -> bool:
        """True if a segment was rolled, or the log created, since the last flush; a background
        flush follows under any policy.
        """
        return self._durability.has_unflushed_segments

    async def flush(self, *, is_rolled_enough: bool = False) -> None:
        """Make everything appended so far durable, or rolled segments and a new log's names; the
        recovery point follows.
        """
        await (self._durability.flush_rolled() if is_rolled_enough else self._durability.flush())

    def flush_now(self) -> None:
        """Like `flush`, but blocks the caller."""
        self._durability.flush_now()

    def close(self) -> None:
        """Flush, write indexes and the producers' snapshot: the next start needs no recovery."""
        if self._durability.failure is None:
            self.removals.settle()
            self._save_producers()
            self._segments.active.trim()
            if not self._durability.is_clean:
                self.flush_now()
        for segment in self._segments.all:
            segment.close()

    def _save_producers(self) -> None:
        """Save producers for a start without replay; a small log without producers is replayed as
        fast as a file is read.
        """
        entries = self._producers.snapshot()
        is_worth_it = bool(entries) or self.size_bytes > SMALL_SEGMENT_BYTES
        if is_worth_it and self._snapshot_offset != self.log_end_offset:
            self._write_snapshot(self.log_end_offset, entries)

    def _write_snapshot(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Durable with the next flush."""
        path = f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        write_snapshot(self._disk, path, entries)
        self._durability.note_names(path)

    def abandon(self) -> None:
        """Release all descriptors without writing: the log is deleted, or its directory failed."""
        self.is_abandoned = True
        self.folder.let_go()
        for segment in self._segments.all:
            segment.mark_flushed()
            segment.file.retire()

    def note_replaced(self, base_offset: int) -> None:
        """The batch there was damaged on the disk and has its bytes again; digests that were worked
        out meanwhile may be of its damaged header.
        """
        self.corrupt_batches = tuple(one for one in self.corrupt_batches if one.base_offset != base_offset)
        self.digests.drop_from(base_offset)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Put compacted segments in the place of the originals; `removals.put_aside` must
        follow.
        """
        self.digests.drop_from(old[0].base_offset)
        self.removals.replace(self._segments, old, new, now_ms + self.config.file_delete_delay_ms)
