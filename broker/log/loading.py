"""Opening a partition's directory: which files count, what must be checked again, and the state
that follows from the batches.

After a clean shutdown nothing is scanned: the last segment's end is found from its index, producers
come from the snapshot at the log's end. After a crash the segments from the recovery point on are
checked batch by batch; at the first bad one the log is truncated, later segments are set aside,
indexes are rebuilt, leader epochs and producers replayed. Everything dropped is in the report. It
also completes or drops what a crash interrupted: deletions (`.deleted`), compactions (`.cleaned`,
`.swap`).

Caller: broker/log/partition_log.py. Runs in worker threads; shares only the descriptor cache.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct, field

from broker.log.core.leader_epochs import LeaderEpochs
from broker.log.core.producer_state import ProducerStates
from broker.log.core.retention import RELATIVE_OFFSET_MAX
from broker.log.directories.checkpoints import LEADER_EPOCHS, CorruptCheckpoint, read_epochs
from broker.log.dropped.dropped_batches import DroppedBatches
from broker.log.errors import CorruptLog, StorageError, storage_errors
from broker.log.leftovers import settle_files
from broker.log.producer_replay import ProducerReplay, drop_snapshots_above, restore_producers
from broker.log.producer_snapshots import write_snapshot
from broker.log.recovery import RecoveryReport, SegmentCheck
from broker.log.segments.descriptors import DescriptorCache
from broker.log.segments.indexed_batches import SMALL_SEGMENT_BYTES
from broker.log.segments.segment import Segment
from broker.log.segments.segment_creation import create_segment
from broker.log.segments.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    numbered_offset,
)
from broker.log.segments.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import DirectoryEntry, Disk
from wire.protocol.ids import TopicPartition


class LoadedLog(Struct, kw_only=True):
    """A log as loaded from its directory: the segments in order, at least one, and the state at
    their end.

    `saved_epochs_version` is the version of `epochs` that the file holds, -1 for none;
    `snapshot_offset` the offset of the producers' snapshot that was used, -1 for none;
    `new_snapshots` are the paths of snapshots that are to be flushed.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    report: RecoveryReport
    saved_epochs_version: int = -1
    snapshot_offset: int = -1
    new_snapshots: tuple[str, ...] = ()


class _Progress(Struct):
    scanned_segments: int = 0
    scanned_bytes: int = 0
    last_hole: int = -1
    notes: list[str] = field(default_factory=list)


def load_log(
    directory: str,
    descriptors: DescriptorCache,
    config: LogConfig,
    *,
    key: TopicPartition,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> LoadedLog:
    """Open the directory; with `is_clean` the files are taken as they are."""
    dropped = DroppedBatches(descriptors.disk, directory, key.topic, key.partition, config.truncated_bytes_kept_max)
    loading = _Loading(directory, descriptors, config, is_clean, now_ms, dropped=dropped)
    return loading.load(recovery_point, log_start_offset)


def new_log(directory: str, descriptors: DescriptorCache, config: LogConfig, *, now_ms: int) -> LoadedLog:
    """The state of an empty directory: nothing to look for, nothing to check."""
    report = RecoveryReport(directory=directory, is_clean=True)
    epochs = LeaderEpochs()
    return LoadedLog(
        segments=[create_segment(directory, 0, descriptors, config, now_ms=now_ms)],
        epochs=epochs,
        producers=ProducerStates(),
        report=report,
        saved_epochs_version=epochs.version,
    )


class _Loading:
    def __init__(
        self,
        directory: str,
        descriptors: DescriptorCache,
        config: LogConfig,
        is_clean: bool,
        now_ms: int,
        *,
        dropped: DroppedBatches,
    ) -> None:
        self.directory = directory
        self.descriptors = descriptors
        self.disk: Disk = descriptors.disk
        self.config = config
        self.is_clean = is_clean
        self.now_ms = now_ms
        self.progress = _Progress()
        self.dropped = dropped
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.damaged_indexes: set[int] = set()
        self.last_epoch = -1
        self.names: set[str] | None = None
        self.saved_epochs_version = -1
        self.snapshot_offset = -1
        self.new_snapshots: list[str] = []

    def load(self, recovery_point: int, log_start_offset: int) -> LoadedLog:
        entries = settle_files(
            self.disk,
            self.directory,
            log_start_offset=0 if self.is_clean else log_start_offset,
            notes=self.progress.notes,
        )
        self.names = set(entries)
        segments = self._find_segments(entries)
        try:
            return self._loaded(segments, recovery_point, log_start_offset)
        except StorageError:
            # no log will own them
            for segment in segments:
                segment.give_up()
            raise

    def _loaded(self, segments: list[Segment], recovery_point: int, log_start_offset: int) -> LoadedLog:
        if not segments:
            segments = [
                create_segment(self.directory, log_start_offset, self.descriptors, self.config, now_ms=self.now_ms)
            ]
        first_unsure = len(segments)
        if not self.is_clean:
            # the segment with the recovery point is uncertain too: it was active, or truncated,
            # when the point was saved
            first_unsure = max(sum(segment.base_offset <= recovery_point for segment in segments) - 1, 0)
        if not self._load_sure(segments, first_unsure):
            first_unsure = len(segments) - 1
        sure = segments[:first_unsure]
        self._read_epochs(sure)
        if first_unsure == len(segments):
            end = segments[-1].next_offset
            self._restore_producers(sure, end)
        else:
            unsure_from = segments[first_unsure].base_offset
            # the file may name epochs whose batches the disk has lost; the replay adds the epochs
            # of existing batches
            self.epochs.truncate_from_end(unsure_from)
            self._restore_producers(sure, unsure_from)
            replay = ProducerReplay(self.producers)
            segments = self._recover(segments, first_unsure, replay)
            # batches that still wait in the replay would be missing from the final state
            replay.settle()
            end = segments[-1].next_offset
            drop_snapshots_above(self.disk, self.directory, end)
        if end < log_start_offset:
            segments, end = self._start_over(segments, log_start_offset), log_start_offset
        # +1 keeps an epoch that begins at the end without a record: its leader was elected
        self.epochs.truncate_from_end(end + 1)
        return LoadedLog(
            segments=segments,
            epochs=self.epochs,
            producers=self.producers,
            report=self._report(),
            saved_epochs_version=self.saved_epochs_version,
            snapshot_offset=self.snapshot_offset,
            new_snapshots=tuple(self.new_snapshots),
        )

    def _start_over(self, segments: list[Segment], log_start_offset: int) -> list[Segment]:
        """Start an empty log: a deletion left these segments when the newest one was lost."""
        below = f"it lies below the log start offset {log_start_offset}"
        self.progress.notes += [f"{one.path} is removed: {below}" for one in segments]
        self._remove_from(segments, 0)
        self._restore_producers([], 0)
        self.epochs.clear()
        return [create_segment(self.directory, log_start_offset, self.descriptors, self.config, now_ms=self.now_ms)]

    def _restore_producers(self, segments: list[Segment], end_offset: int) -> None:
        restored = restore_producers(self.disk, self.directory, segments, self.producers, end_offset, names=self.names)
        self.progress.notes.extend(restored.notes)
        self.snapshot_offset = restored.snapshot_offset
        self.names = None

    def _report(self) -> RecoveryReport:
        progress = self.progress
        return RecoveryReport(
            directory=self.directory,
            is_clean=self.is_clean,
            scanned_segments=progress.scanned_segments,
            scanned_bytes=progress.scanned_bytes,
            last_hole=progress.last_hole,
            dropped=tuple(self.dropped.tails),
            notes=(*progress.notes, *self.dropped.notes),
        )

    # -- files -------------------------------------------------------------------------------------

    def _find_segments(self, entries: dict[str, DirectoryEntry]) -> list[Segment]:
        segments = []
        numbered = (numbered_offset(name, LOG_SUFFIX) for name in entries)
        for base_offset in sorted(offset for offset in numbered if offset is not None):
            log = entries[file_name(base_offset, LOG_SUFFIX)]
            index_bytes = self._index_bytes(entries, base_offset)
            # a small log has no index files at a stop (`needs_no_index`), so their absence is not
            # damage
            index_names = (file_name(base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            is_small = log.size_bytes <= SMALL_SEGMENT_BYTES and entries.keys().isdisjoint(index_names)
            if index_bytes is None and not is_small:
                self.damaged_indexes.add(base_offset)
            segment = Segment(
                self.directory,
                base_offset,
                self.descriptors,
                size_bytes=log.size_bytes,
                next_offset=base_offset,
                created_ms=log.modified_ms,
                index_bytes=index_bytes,
            )
            segments.append(segment)
        return segments

    def _index_bytes(self, entries: dict[str, DirectoryEntry], base_offset: int) -> tuple[int, int] | None:
        offset_index = entries.get(file_name(base_offset, INDEX_SUFFIX))
        time_index = entries.get(file_name(base_offset, TIME_INDEX_SUFFIX))
        if offset_index is None or time_index is None:
            return None
        sizes = offset_index.size_bytes, time_index.size_bytes
        return None if sizes[0] % OFFSET_ENTRY.size or sizes[1] % TIME_ENTRY.size else sizes

    # -- what needs no check -----------------------------------------------------------------------

    def _load_sure(self, segments: list[Segment], count: int) -> bool:
        """Load the first `count` segments unchecked; False if the last of all turns out to be
        damaged.
        """
        for segment, following in pairwise(segments[: count + 1]):
            segment.next_offset = following.base_offset
        for segment in segments[:count]:
            # the last segment's index is rebuilt below, where a fault can still lead to a full
            # check
            if segment.base_offset in self.damaged_indexes and segment is not segments[-1]:
                self.progress.notes.append(f"an index of {segment.path} was missing or damaged and is rebuilt")
                segment.rebuild_indexes(self.config.index_interval_bytes)
        if count < len(segments):
            return True
        try:
            if segments[-1].base_offset in self.damaged_indexes:
                segments[-1].rebuild_indexes(self.config.index_interval_bytes)
            segments[-1].load_end()
        except CorruptLog as fault:
            self.progress.notes.append(f"the shutdown was clean, but {fault}; the segment is checked")
            return False
        return True

    def _read_epochs(self, sure: list[Segment]) -> None:
        """Read the leader epochs from the file, else from the batches of segments that recovery
        does not check.
        """
        path = f"{self.directory}/{LEADER_EPOCHS}"
        try:
            entries = read_epochs(self.disk, path)
        except CorruptCheckpoint as fault:
            entries = []
            self.progress.notes.append(f"leader epochs are rebuilt: {fault}")
        self.epochs = LeaderEpochs(entries)
        if entries:
            self.saved_epochs_version = self.epochs.version
            return
        for segment in sure:
            for header in segment.headers():
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    # -- recovery ----------------------------------------------------------------------------------

    def _recover(self, segments: list[Segment], first: int, replay: ProducerReplay) -> list[Segment]:
        expected, may_have_gap = segments[first].base_offset, self.config.is_compacted
        for index in range(first, len(segments)):
            segment = segments[index]
            gap = segment.base_offset - expected
            # a hole wider than a segment can span was left by a roll; a smaller one means lost
            # batches, except in a log that Apache Kafka compacted
            if gap < 0 or (0 < gap <= RELATIVE_OFFSET_MAX and not may_have_gap):
                return self._drop_from(segments, index, f"begins at {segment.base_offset}, expected was {expected}")
            check = self._recover_segment(segment, replay, is_last=segment is segments[-1])
            expected = segment.next_offset
            # zeros are harmless unless batches of the segment are missing
            may_have_gap = self.config.is_compacted and not check.fault
            if check.fault and not check.has_zeros_left:
                return self._drop_from(segments, index + 1, f"the one before was truncated at offset {expected}")
            if index + 1 < len(segments):
                self._save_producers(segments[index + 1].base_offset, replay)
        return segments

    def _save_producers(self, offset: int, replay: ProducerReplay) -> None:
        """Write the snapshot that the roll at `offset` had made and that was not trusted: without
        it, producers would be forgotten with the segments before it.
        """
        replay.settle()
        if len(self.producers):
            path = f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
            write_snapshot(self.disk, path, self.producers.snapshot())
            self.new_snapshots.append(path)

    def _recover_segment(self, segment: Segment, replay: ProducerReplay, *, is_last: bool) -> SegmentCheck:
        segment.reset_indexes()
        segment.transactions.clear()
        descriptor = segment.file.acquire()
        try:
            check = SegmentCheck(
                self.disk,
                descriptor,
                segment.path,
                size_bytes=segment.size_bytes,
                base_offset=segment.base_offset,
                epoch=self.last_epoch,
            )
            self._take(segment, check, replay)
            if check.fault:
                check.look_for_zeros()
                if not check.has_zeros_left:
                    self.dropped.add_tail(descriptor, segment.path, segment.size_bytes, check)
                # durable at once: a segment that follows may begin at the recovery point, and if
                # another crash restored the tail, it would be unchecked
                with storage_errors("truncating", segment.path):
                    self.disk.truncate(descriptor, check.valid_bytes)
                    self.disk.fdatasync(descriptor)
        finally:
            segment.file.release()
        self.last_epoch = check.epoch
        self.progress.last_hole = max(self.progress.last_hole, check.last_hole)
        self.progress.scanned_segments += 1
        self.progress.scanned_bytes += segment.size_bytes
        if check.has_zeros_left:
            # nothing was written there, or none of it reached the disk: a loss shows where the next
            # segment begins
            zeros = segment.size_bytes - check.valid_bytes
            self.progress.notes.append(f"{zeros} bytes of zeros at the end of {segment.path} are truncated")
        segment.size_bytes = check.valid_bytes
        segment.next_offset = check.next_offset
        if not is_last:
            # after kill -9 the bytes may be in the page cache alone; the recovery point stays below
            # them until they are flushed
            segment.mark_dirty()
            segment.write_indexes()
        elif not segment.needs_no_index:
            segment.write_indexes()
        segment.transactions.flush()
        return check

    def _take(self, segment: Segment, check: SegmentCheck, replay: ProducerReplay) -> None:
        """Apply the segment's valid batches to all states, in one pass."""
        index_batch, assign = segment.index_batch, self.epochs.assign
        interval_bytes = self.config.index_interval_bytes
        for position, header in check.batches():
            max_timestamp = header.max_timestamp if header.record_count else -1
            index_batch(position, header.size_bytes, header.last_offset, max_timestamp, interval_bytes)
            assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                content = check.content(position, header) if header.is_control else b""
                aborted = replay.take(header, content)
                if aborted is not None:
                    segment.transactions.append(aborted)

    def _drop_from(self, segments: list[Segment], first: int, reason: str) -> list[Segment]:
        for segment in segments[first:]:
            self.dropped.add_segment(segment, reason, self.last_epoch)
        return self._remove_from(segments, first)

    def _remove_from(self, segments: list[Segment], first: int) -> list[Segment]:
        for segment in segments[first:]:
            segment.give_up()
            segment.rename_for_removal()
        if segments[first:]:
            # a segment that another crash restored could join batches that were appended since
            with storage_errors("flushing", self.directory):
                self.disk.fsync_directory(self.directory)
        return segments[:first]
