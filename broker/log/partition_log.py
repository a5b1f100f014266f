"""The log of one partition: an ordered run of record batches on disk, in Apache Kafka's format.

Owns offsets, segments, leader epochs, producer state and the recovery point. It does not know
roles, replicas or access rights: callers pass an end offset. All methods run on the event loop that
owns the log; only fsyncs run in a thread, and slices outlive the segments they point into. Batches
are moved as bytes: an append writes a patched prefix and the untouched rest with one gathering
write, never opening a record.

Invariants: (a) log_start_offset <= recovery_point <= log_end_offset and high_watermark between
start and end; (b) what `append_*` returned is in the log or a StorageError was raised and nothing
is; (c) offsets and leader epochs never go back.

Callers: broker/replication/replicas.py through broker/log/directories/log_store.py.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from mypy_extensions import mypyc_attr

from broker.log.core.retention import (
    RetentionHold,
    RetentionPolicy,
    expired_segments,
)
from broker.log.errors import OffsetOutOfRange
from broker.log.log_writing import WritableLog
from broker.log.producer_replay import restore_producers
from broker.log.segments.indexed_batches import SMALL_SEGMENT_BYTES
from broker.log.segments.log_slice import LogSlice
from broker.log.segments.segment import Segment
from broker.log.segments.segment_creation import create_segment
from broker.log.segments.timestamps import TimestampOffset, first_record_at, largest_timestamp_from
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.truncation import truncation


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionLog(WritableLog):
    """One partition's log. Making it opens the directory, which exists (`log_state.py`)."""

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int | None = None, has_minimum_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from `offset` on, below `end_offset`; empty at the end. The caller releases
        the slice.

        The first batch may begin before `offset`. It is returned whole, even above `max_bytes`, if
        `has_minimum_one_batch`.
        """
        self._durability.refuse_when_failed()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        end = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        return self._segments.read(
            # -1 leaves out the batch that contains `offset`, if the high watermark is inside it
            offset,
            max_bytes=max_bytes,
            end_offset=end if offset < end else -1,
            has_minimum_one_batch=has_minimum_one_batch,
        )

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Bytes between `offset` and `end_offset`: for min.bytes of delayed fetches."""
        if not self.log_start_offset <= offset < end_offset:
            return 0
        return self._segments.bytes_between(offset, min(end_offset, self.log_end_offset))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`; None if the log has no such
        offset.
        """
        self._durability.refuse_when_failed()
        found = self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        while found is not None:
            record = first_record_at(found.content, found.header, timestamp_ms, self.log_start_offset)
            # None: the record that made the batch match is below the log's start; the next batch
            # may match too
            if record is not None:
                return record._replace(leader_epoch=self._epochs.epoch_at(record.offset))
            found = self._segments.find_timestamp(timestamp_ms, found.header.next_offset)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the log's largest timestamp; None for a log without
        timestamps.
        """
        largest = self.max_timestamp_ms
        found = self.offset_for_timestamp(largest) if largest >= 0 else None
        if found is not None or largest < 0:
            return found
        # that record is below the log's start: the remaining ones are searched
        largest = largest_timestamp_from(self._segments.all, self.log_start_offset)
        return self.offset_for_timestamp(largest) if largest >= 0 else None

    def aborted_transactions(self, from_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the range, for read-committed readers."""
        return self._segments.aborted_transactions(from_offset, end_offset)

    # -- truncating --------------------------------------------------------------------------------

    def truncation(self, offset: int) -> AbstractAsyncContextManager[None]:
        """Truncate to `offset` or restart there in the body, after a last check by the caller,
        without blocking the event loop; see `truncation.py`.
        """
        return truncation(self, self._segments, self._durability, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop everything at or above `offset`, the whole batch that contains it, and leader epochs
        without a record below it.

        Inside a segment a truncation is durable with the next flush. A crash before that may
        restore the tail; recovery truncates it where its leader epoch is below that of batches
        appended since.
        """
        self._durability.refuse_when_failed()
        if offset >= self.log_end_offset:
            # an epoch may have begun at the end without a record; a copy must not keep it
            self._epochs.truncate_from_end(offset)
            return
        # a swap that continued in its thread would rename segments that are dropped here
        self.swaps.finish()
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        keep = self._segments.last_kept(offset)
        # back to where the segment begins: the next one may begin at the truncated end, and
        # recovery must still check this one
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
            # batches without timestamps have the age of the log's files, never that of 1970
            created_ms = self._segments.active.created_ms
            self.removals.drop(self._segments.remove_from(0))
            segment = create_segment(self.directory, offset, self._descriptors, self.config, now_ms=created_ms)
            self._segments.add(segment)
        self.log_start_offset = self.log_end_offset = offset
        self._epochs.clear()
        self._after_truncation()

    def _after_truncation(self) -> None:
        end = self.log_end_offset
        self.content_version += 1
        self.log_start_offset = min(self.log_start_offset, end)
        self._epochs.truncate_from_end(end)
        self._durability.end_truncation(end)
        self.compacted_to, self.thinned_to = min(self.compacted_to, end), min(self.thinned_to, end)
        self.digests.drop_from(end)
        self._high_watermark = min(max(self._high_watermark, self.log_start_offset), end)
        # dropped snapshots are removed with the segments, or a crash would combine them with other
        # batches
        drop, segments = self.removals.drop_file, self._segments.all
        restored = restore_producers(self._disk, self.directory, segments, self._producers, end, remove=drop)
        self._snapshot_offset = restored.snapshot_offset
        # the replay does not know which markers are replicated
        self._producers.advance_high_watermark(self._high_watermark)
        # a truncation that a thread finishes (`lowered`) settles there and does not block the loop
        if not self._durability.is_lowered:
            self.removals.settle()

    def expire_segments(self, now_ms: int, *, is_copy: bool = False, hold: RetentionHold | None = None) -> str:
        """Drop segments by time, size and log start (a copy: by log start alone), except held
        segments; return the reason, or "". `held` says afterwards what is.

        Call `removals.put_aside` afterwards; the files are deleted after file.delete.delay.ms.
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
        # bytes count as given up when their segments go, not when a pass that removes nothing finds
        # them
        self.held = held._replace(given_up_bytes=0) if held.given_up_bytes else held
        # a swap replaces the same segments; the next pass checks again
        if not expiry.segment_count or self.swaps.is_under_way:
            return ""
        # a log always has an active segment: an empty one takes the end's name
        if expiry.segment_count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        following = self._segments.all[expiry.segment_count].base_offset
        self.advance_log_start_offset(min(following, self._high_watermark))
        self.removals.expire(self._segments, expiry.segment_count, now_ms + self.config.file_delete_delay_ms)
        self.content_version += 1
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
    def is_at_rest(self) -> bool:
        """True if no background flush has anything to do here."""
        return self._durability.is_at_rest

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

    def close(self, *, is_name_left: bool = False) -> None:
        """Flush, write indexes and the producers' snapshot: the next start needs no recovery. With
        `is_name_left`, the caller makes the name of a new log durable.
        """
        if self._durability.failure is None:
            # in this order: the snapshot and the trimmed length must exist before the flush
            self.removals.settle()
            self._save_producers()
            self._segments.active.trim()
            # a truncation lowers it in memory; after a clean stop no start looks for holes
            if self.is_thinning_unsaved or self.thinned_to < self._saved_thinned_to:
                self.save_thinned()
            self.note_holes_saved()
            if not self._durability.is_clean:
                self._durability.flush_now(is_name_left=is_name_left)
        for segment in self._segments.all:
            segment.close()

    def _save_producers(self) -> None:
        """Save producers for a start without replay; a small log without producers is replayed as
        fast as a file is read.
        """
        entries = self._producers.snapshot()
        is_worth_it = bool(entries) or self.size_bytes > SMALL_SEGMENT_BYTES
        # a snapshot at this offset is on disk already when nothing was written since the start
        if is_worth_it and self._snapshot_offset != self.log_end_offset:
            self._write_snapshot(self.log_end_offset, entries)

    def abandon(self) -> None:
        """Release all descriptors without writing: the log is deleted, or its directory failed."""
        self.is_abandoned = True
        self.folder.let_go()
        for segment in self._segments.all:
            # a dirty segment keeps its descriptor until a flush, which will not come
            segment.mark_flushed()
            segment.file.retire()

    def note_replaced(self, base_offset: int) -> None:
        """The damaged batch there has its bytes again; digests that were computed in between may
        include its damaged header.
        """
        self.corrupt_batches = tuple(one for one in self.corrupt_batches if one.base_offset != base_offset)
        self.content_version += 1
        self.digests.drop_from(base_offset)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Put compacted segments in the place of the originals; `removals.put_aside` must
        follow.
        """
        self.digests.drop_from(old[0].base_offset)
        self.removals.replace(self._segments, old, new, now_ms + self.config.file_delete_delay_ms)
