"""Compaction of inactive segments: reads them, and writes new ones with only the records to keep,
as `.cleaned` files.

Runs in a worker thread or process on plain values (`CleaningPlan`), touches no files of the log,
and is idempotent: its output has no effect until broker/log/cleaning/log_compaction.py swaps it in.
Offsets never change. Batches that keep all their records are copied as bytes; others are written
anew with their offsets, producer fields and codec, fewer records and a new checksum. A producer's
last batch stays, empty if necessary, because it has the producer's sequence numbers. The last batch
of each new segment stays too: segments join without a gap, so recovery can distinguish a lost
segment from a compacted one. A transaction's marker stays while one of its batches does, even an
empty one: without the marker, a replay of the log would find an open transaction. After that the
marker stays as long as a tombstone would, and a marker that raised its producer's epoch until the
producer writes or expires.

Keys are read from the dirty part only: in the part that an earlier pass has cleaned, each key
occurs once. If a dirty batch holds no newest record, only its header is read again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from broker.log.cleaning.cleaned_output import CleanedOutput
from broker.log.cleaning.kept_batches import KeptBatch, check_crc, empty_batch, opened, rewritten
from broker.log.cleaning.pace import Pace
from broker.log.core.cleaning_choice import Dirtiness
from broker.log.core.compaction import KEYS_MAX, AbortedRange, AbortedRanges, KeyOffsets, keeps_tombstone
from broker.log.core.retention import RELATIVE_OFFSET_MAX
from broker.log.errors import storage_errors
from broker.log.segments.batch_scan import BatchScan
from broker.log.segments.segment_names import LOG_SUFFIX, file_name
from broker.log.segments.transaction_index import AbortedTransaction
from runtime.disk import Disk
from wire.batches.record_batch import (
    BatchHeader,
)
from wire.batches.record_walks import RecordSpan, read_keys, record_spans
from wire.batches.records import open_body

LITTLE_SHARE = 1 / 16
"""The share of a segment's size up to which its remaining part counts as little."""


SEGMENT_BYTES_MAX = 2**31 - 1  # the largest position that fits an index entry


class SourceSegment(Struct, frozen=True, kw_only=True):
    """An inactive segment that is cleaned."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_ms: int = -1


class CleaningPlan(Struct, frozen=True, kw_only=True):
    """The logs to clean and the rules, as plain values. `bytes_per_second_max` 0 means without a
    limit. `truncation_count` is that of the log.
    """

    directory: str
    truncation_count: int
    segments: tuple[SourceSegment, ...]
    dirty_from: int
    dirtiness: Dirtiness
    aborted: tuple[AbortedTransaction, ...]
    producer_last_offsets: dict[int, int]
    raised_epochs: dict[int, int]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    bytes_per_second_max: float = 0.0
    keys_max: int = KEYS_MAX


class CleanedSegment(Struct, frozen=True, kw_only=True):
    """One new segment, which replaces the segments in `replaces`."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: tuple[int, int]
    replaces: tuple[SourceSegment, ...]


class CleaningResult(Struct, frozen=True, kw_only=True):
    """The result of a pass, and the offset up to which keys are unique now."""

    segments: tuple[CleanedSegment, ...]
    cleaned_to: int
    bytes_before: int
    bytes_after: int


class CleaningFailed(Struct, frozen=True, kw_only=True):
    """The reason why a plan failed, as a plain value: the message of a StorageError or an
    InvalidBatch.
    """

    is_invalid_batch: bool
    operation: str
    path: str
    reason: str
    position: int = 0


def clean(plan: CleaningPlan, disk: Disk) -> CleaningResult:
    """Write the compacted segments of `plan` durably, as `.cleaned` files."""
    return _Cleaning(plan, disk).run()


class _Cleaning:
    def __init__(self, plan: CleaningPlan, disk: Disk) -> None:
        self.plan = plan
        self.disk = disk
        self.keys = KeyOffsets(plan.keys_max)
        self.pace = Pace(plan.bytes_per_second_max)
        self.transactions_with_batches: set[int] = set()
        ranges = (AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset) for entry in plan.aborted)
        self.aborted = AbortedRanges(ranges)

    def run(self) -> CleaningResult:
        sources = self._collect_keys()
        pending, written = deque(sources), []
        while pending:
            written.append(self._write(pending))
        return CleaningResult(
            segments=tuple(written),
            cleaned_to=sources[-1].next_offset if sources else self.plan.segments[0].base_offset,
            bytes_before=sum(source.size_bytes for source in sources),
            bytes_after=sum(segment.size_bytes for segment in written),
        )

    def _collect_keys(self) -> list[SourceSegment]:
        """Record the newest offset of each key; return the segments that were read completely
        before the memory was full.
        """
        read = []
        for source in self.plan.segments:
            # in the clean part each key is there once: nothing to note
            if source.next_offset <= self.plan.dirty_from:
                read.append(source)
                continue
            for header, scan in self._batches(source):
                if not header.is_control and not self._is_aborted(header):
                    self.keys.note(header, *opened(header, *self._content(header, scan)))
            read.append(source)
            # whole segments only: `cleaned_to` must be an offset below which every key was recorded
            if self.keys.is_full:
                break
        self.keys.close()
        return read

    def _is_aborted(self, header: BatchHeader) -> bool:
        """True if the batch's transaction was aborted; a batch belongs to at most one."""
        return header.is_transactional and self.aborted.holds(header.producer_id, header.base_offset)

    def _fits(self, first: SourceSegment, written_bytes: int, following: SourceSegment) -> bool:
        """True if a segment has room for another source even if all of the source's bytes are kept.

        A source with few remaining bytes may exceed the size by that amount. Otherwise each source
        without remaining records would become a segment with one empty batch, and clients that read
        many such in a row (librdkafka: eleven) believe that the next record is too large for them.
        """
        size_bytes_max = min(self.plan.segment_bytes * (1 + LITTLE_SHARE), SEGMENT_BYTES_MAX)
        is_reachable = following.next_offset - first.base_offset <= RELATIVE_OFFSET_MAX
        return is_reachable and written_bytes + following.size_bytes <= size_bytes_max

    def _batches(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, BatchScan]]:
        """Headers, and the scan, which has the batch until the next one is requested."""
        path = f"{self.plan.directory}/{file_name(source.base_offset, LOG_SUFFIX)}"
        with storage_errors("opening", path):
            descriptor = self.disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            scan = BatchScan(self.disk, descriptor, path, 0, source.size_bytes)
            for _, header in scan:
                yield header, scan
        finally:
            self.disk.close(descriptor)

    def _content(self, header: BatchHeader, scan: BatchScan) -> tuple[bytes, int]:
        self.pace.spend(header.size_bytes)
        return scan.content()

    def _write(self, pending: deque[SourceSegment]) -> CleanedSegment:
        """Write one new segment from as many of the oldest sources as fit."""
        group = [pending.popleft()]
        output = CleanedOutput(
            self.disk,
            self.plan.directory,
            group[0].base_offset,
            index_interval_bytes=self.plan.index_interval_bytes,
        )
        markers: set[int] = set()
        with output:
            last = self._copy(group[0], output, markers)
            while pending and self._fits(group[0], output.size_bytes, pending[0]):
                group.append(pending.popleft())
                last = self._copy(group[-1], output, markers) or last
            # the group's last batch stays, empty: the next segment then begins where this one ends
            if last is not None and output.next_offset < last.next_offset:
                output.add(self._emptied(last))
            output.finish(entry for entry in self.plan.aborted if entry.last_offset in markers)
        return CleanedSegment(
            base_offset=group[0].base_offset,
            next_offset=group[-1].next_offset,
            size_bytes=output.size_bytes,
            index_bytes=(output.offset_index.size_bytes, output.time_index.size_bytes),
            replaces=tuple(group),
        )

    def _copy(self, source: SourceSegment, output: CleanedOutput, markers: set[int]) -> BatchHeader | None:
        """Write the remaining part of one source; return its last batch, None if it has none."""
        last: BatchHeader | None = None
        is_dirty = source.next_offset > self.plan.dirty_from
        for header, scan in self._batches(source):
            last = header
            kept = self._keep_marker(header, scan) if header.is_control else self._keep(header, scan, is_dirty=is_dirty)
            if kept is None:
                continue
            output.add(kept)
            self.pace.spend(kept.header.size_bytes)
            if header.is_control:
                markers.add(header.last_offset)
        return last

    def _keep(self, header: BatchHeader, scan: BatchScan, *, is_dirty: bool) -> KeptBatch | None:
        """The batch in its remaining form: the same bytes, fewer records, empty, or nothing."""
        newest_count = header.record_count
        if is_dirty:
            newest_count = self.keys.newest_count(header.base_offset, header.last_offset)
        if newest_count == 0 or self._is_aborted(header):
            return self._keep_nothing(header)
        content, at = self._content(header, scan)
        body, start, end = opened(header, content, at)
        # the quick check first: most batches stay whole, and their records are not parsed
        if newest_count < header.record_count or not self._stays_whole(header, body, start, end):
            return self._keep_some(header, content, at, body[start:end])
        if header.is_transactional:
            self.transactions_with_batches.add(header.producer_id)
        return KeptBatch(header, content, at)

    def _stays_whole(self, header: BatchHeader, body: bytes, start: int, end: int) -> bool:
        """True if nothing of the batch is removed or changed; after False, a closer check may still
        find that.
        """
        offsets: dict[bytes | None, int] = {}
        tombstone_count = read_keys(
            body, start, end=end, record_count=header.record_count, base_offset=header.base_offset, offsets=offsets
        )
        return tombstone_count == 0 and len(offsets) == header.record_count and self.keys.are_newest(offsets)

    def _keep_some(self, header: BatchHeader, content: bytes, at: int, body: bytes) -> KeptBatch | None:
        horizon_ms = header.base_timestamp if header.has_delete_horizon else None
        kept = [span for span in record_spans(body, header.record_count) if self._keeps(header, span, horizon_ms)]
        if not kept:
            return self._keep_nothing(header)
        if header.is_transactional:
            self.transactions_with_batches.add(header.producer_id)
        needs_horizon = horizon_ms is None and any(span.is_tombstone for span in kept)
        if len(kept) == header.record_count and not needs_horizon:
            return KeptBatch(header, content, at)
        check_crc(header, content, at)
        new_horizon_ms = self.plan.now_ms + self.plan.delete_retention_ms if needs_horizon else None
        return rewritten(header, body, kept, new_horizon_ms)

    def _keep_nothing(self, header: BatchHeader) -> KeptBatch | None:
        """Keep nothing, or an empty batch if this is its producer's last one."""
        is_last = self.plan.producer_last_offsets.get(header.producer_id) == header.last_offset
        return self._emptied(header) if header.producer_id >= 0 and is_last else None

    def _emptied(self, header: BatchHeader) -> KeptBatch:
        if header.is_transactional and not header.is_control:
            self.transactions_with_batches.add(header.producer_id)
        return empty_batch(header)

    def _keep_marker(self, header: BatchHeader, scan: BatchScan) -> KeptBatch | None:
        """A marker without batches of its transaction is removed like a tombstone; one that raised
        its producer's epoch stays while no batch follows: without it, a replay of the log would let
        the fenced producer write again.
        """
        content, at = self._content(header, scan)
        horizon_ms = header.base_timestamp if header.has_delete_horizon else None
        has_batches = header.producer_id in self.transactions_with_batches
        # the marker ends the transaction: later records of this producer belong to another one
        self.transactions_with_batches.discard(header.producer_id)
        if has_batches:
            return KeptBatch(header, content, at)
        # a pass has removed the marker: its empty batch only ended a segment
        if not header.record_count:
            return None
        # the horizon starts in the pass that first finds no batch (KIP-534)
        if horizon_ms is None:
            horizon_ms = self.plan.now_ms + self.plan.delete_retention_ms
            check_crc(header, content, at)
            body = open_body(content, at, header)
            return rewritten(header, body, record_spans(body, header.record_count), horizon_ms)
        is_fence = self.plan.raised_epochs.get(header.producer_id) == header.producer_epoch
        return KeptBatch(header, content, at) if is_fence or keeps_tombstone(horizon_ms, self.plan.now_ms) else None

    def _keeps(self, header: BatchHeader, span: RecordSpan, horizon_ms: int | None) -> bool:
        if not self.keys.is_newest(span.key, header.base_offset + span.offset_delta):
            return False
        return not span.is_tombstone or keeps_tombstone(horizon_ms, self.plan.now_ms)
