"""The state of one partition's log: its segments, leader epochs, producers, offsets and recovery
point, and queries that need only these.

Caller: broker/log/log_writing.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from broker.log.core.batch_checks import BatchLimits
from broker.log.core.leader_epochs import EpochColumns, EpochEnd, EpochStart
from broker.log.core.producer_state import ProducerStates
from broker.log.core.retention import (
    NOTHING_HELD,
    RollPolicy,
)
from broker.log.directories.checkpoints import (
    PARTITION_METADATA,
    THINNED,
    CorruptCheckpoint,
    read_number,
    write_number,
    write_topic_id,
)
from broker.log.directories.folder import Folder
from broker.log.directories.removal import PendingRemovals
from broker.log.durability import Durability
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.loading import load_log, new_log
from broker.log.range_digests import RangeDigests
from broker.log.segments.descriptors import DescriptorCache
from broker.log.segments.segment_list import Segments
from broker.log.source_seen import SourceSeen
from broker.log.truncation import Swaps
from broker.settings.core.topic_configs import LogConfig
from wire.protocol.ids import TopicPartition


class CorruptBatch(NamedTuple):
    """Bytes on disk that differ from what was written; both offsets are included."""

    base_offset: int
    last_offset: int
    reason: str


@mypyc_attr(allow_interpreted_subclasses=True)
class LogState:
    """The state of one partition's log. Making it opens the directory, which exists.

    Unless `is_clean`, everything from `recovery_point` on is checked: see `recovery`. With `is_new`
    the directory is empty. `roll_jitter` between 0 and 1 is the share of segment.jitter.ms that
    this log takes off segment.ms.
    """

    corrupt_batches: tuple[CorruptBatch, ...] = ()
    """The findings of the scrubber's last pass (`scrubbing.py`)."""
    scrubbed_at_ms: int = 0
    """The end of that pass, Unix ms; 0 before the first one of this process."""
    content_version: int = 0
    """Grows when batches are truncated, expired or repaired; appends and compaction leave it."""
    is_abandoned: bool = False
    """True once the log was deleted, or its directory failed."""
    thinned_to: int = 0
    """Up to where compaction may have removed records for newer ones: a pass here, also one that a
    crash interrupted, or one at the log from which this one was copied. At or above `compacted_to`.
    """
    _saved_thinned_to: int = 0
    unsaved_holes_from: int = -1
    """The copied batches from here on may lack records that `thinned_to` on disk does not know of;
    -1 if it knows all. Recovery has to read them again: the saved recovery point stays at or below.
    """
    has_new_holes: bool = False
    """True if copied batches lack records that the other log's compaction has removed, and
    `note_copied` has not been called since.
    """
    uncleanable_version: int = -1
    """The content version at which the cleaner found a batch that does not decode."""

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
        self.topic, self.partition, self.topic_id = topic, partition, topic_id
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
                key=TopicPartition(topic, partition),
                is_clean=is_clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
            )
        )
        self.recovery, self._epochs, self._producers = loaded.report, loaded.epochs, loaded.producers
        self.held = NOTHING_HELD  # what the last retention pass kept beyond the topic's limits
        self.folder = Folder()
        self._segments = Segments(loaded.segments, self._disk)
        self.log_end_offset = self._segments.active.next_offset
        # the checkpoint may be older than the files, or newer than the bytes that a crash left
        self.log_start_offset = min(max(log_start_offset, self._segments.first.base_offset), self.log_end_offset)
        self._high_watermark = self.log_start_offset
        self.source = SourceSeen()
        # checked bytes may be in the page cache only, so the saved recovery point still counts
        checked_from = min(max(recovery_point, self.log_start_offset), self.log_end_offset)
        self._durability = Durability(
            self._disk,
            directory,
            self.folder,
            self._segments,
            self._epochs,
            end_offset=lambda: self.log_end_offset,
            recovery_point=self.log_end_offset if loaded.report.is_clean else checked_from,
            flushed_to=self.log_end_offset if loaded.report.is_clean else min(recovery_point, self.log_end_offset),
            saved_epochs_version=loaded.saved_epochs_version,
            is_new=is_new,
            has_new_names=is_new or not is_clean,
            new_snapshots=loaded.new_snapshots,
            note_flush=note_flush,
        )
        self.removals = PendingRemovals(self._disk, directory, self.folder, sync_names=self._durability.sync_names)
        self._durability.settle = self.removals.settle
        self.digests, self.swaps = self._kept_digests(is_new=is_new), Swaps()
        self._snapshot_offset, self.compacted_to = loaded.snapshot_offset, self.log_start_offset
        if not is_new:
            self._restore_thinned(loaded.report.last_hole, recovery_point)
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

    def _restore_thinned(self, last_hole: int, recovery_point: int) -> None:
        """`last_hole`: the last batch that recovery read which lacks records, in or before it."""
        try:
            self._saved_thinned_to = read_number(self._disk, f"{self.directory}/{THINNED}") or 0
        except CorruptCheckpoint as fault:
            self.recovery = self.recovery.with_note(f"{fault}; compaction may have reached the end of the log")
            self._saved_thinned_to = self.log_end_offset
        # an unfinished copy of a compacted log ends below this offset; an empty log lacks nothing
        is_empty = self.log_end_offset == self.log_start_offset
        self.thinned_to = self.log_start_offset if is_empty else max(self.log_start_offset, self._saved_thinned_to)
        if last_hole >= recovery_point:
            # `thinned_to` on disk may not know of copied batches above the recovery point: the
            # leader's next answer sets it
            self.thinned_to, self.has_new_holes = max(self.thinned_to, self.log_end_offset), True
            self.unsaved_holes_from = recovery_point

    def note_copied(self, source_end: int) -> None:
        """Batches were copied from a log that compaction has not passed `source_end` of: records
        that they lack may have been removed for newer ones up to there.
        """
        if self.has_new_holes:
            self.has_new_holes = False
            self.thinned_to = max(self.thinned_to, source_end, self.log_end_offset)

    @property
    def is_thinning_unsaved(self) -> bool:
        """True if `thinned_to` on disk is too low."""
        return self.thinned_to > max(self._saved_thinned_to, self.log_start_offset)

    def save_thinned(self) -> None:
        """Write `thinned_to` to disk, durably; may run in a thread."""
        with self.folder.held() as is_here:
            thinned_to = self.thinned_to
            if is_here and thinned_to != self._saved_thinned_to:
                write_number(self._disk, f"{self.directory}/{THINNED}", thinned_to)
                self._saved_thinned_to = thinned_to

    def note_holes_saved(self) -> None:
        """Called on the event loop after `save_thinned`: let the saved recovery point go on, unless
        more such batches were copied meanwhile.
        """
        if not self.is_thinning_unsaved:
            self.unsaved_holes_from = -1

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
        largest = -1
        for segment in self._segments.all:
            largest = max(largest, segment.largest_timestamp()[0])
        return largest

    @property
    def recovery_point(self) -> int:
        """Offset below which everything survives a crash of the machine."""
        return self._durability.recovery_point

    @property
    def recovery_point_to_save(self) -> int:
        """The recovery point, or less: see `Durability` and `unsaved_holes_from`."""
        point = self._durability.recovery_point_to_save
        return point if self.unsaved_holes_from < 0 else min(point, self.unsaved_holes_from)

    @property
    def failure(self) -> StorageError | None:
        """The reason why the log refuses everything; None while it works."""
        return self._durability.failure

    @property
    def truncation_count(self) -> int:
        """Grows with each truncation of the log's end."""
        return self._durability.truncations

    def adopt_state(self, other: LogState) -> None:
        """Take over the state of `other`, a log with the same batches; The caller must not use
        `other` after this call.
        """
        self._epochs.clear()
        for entry in other.leader_epochs:
            self._epochs.assign(entry.epoch, entry.start_offset)
        self._producers = other.give_producers()
        self.compacted_to, self.thinned_to = other.compacted_to, other.thinned_to
        self.has_new_holes, self.unsaved_holes_from = other.has_new_holes, other.unsaved_holes_from
        # high watermark first: the log start may not pass it
        self.advance_high_watermark(other.high_watermark)
        self.advance_log_start_offset(min(other.log_start_offset, self._high_watermark))

    def whole_end_below(self, offset: int) -> int:
        """The end for a truncation at `offset` after which the log lacks no record that another
        replica has: the log start, if compaction has removed records below `offset` for newer ones
        above it.
        """
        return offset if offset >= self.thinned_to else min(offset, self.log_start_offset)

    @property
    def leader_epochs(self) -> list[EpochStart]:
        """All leader epochs with their first offsets."""
        return self._epochs.entries

    @property
    def written_epochs(self) -> EpochColumns:
        """The leader epochs of the records, oldest first."""
        return self._epochs.begun_before(self.log_end_offset)

    def give_producers(self) -> ProducerStates:
        """The producers' state itself, for the log that replaces this one."""
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
        """Apply the high watermark that replication has reached, limited to the log's start and
        end.
        """
        # a follower may receive a high watermark above its own log end
        self._high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self._producers.advance_high_watermark(self._high_watermark)

    def advance_log_start_offset(self, offset: int) -> None:
        """Drop everything below `offset`, at most up to the high watermark; the next retention pass
        removes segments.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self._high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._durability.note_log_start(offset)
            self._epochs.truncate_from_start(offset)

    @property
    def last_stable_offset(self) -> int:
        """Up to where read-committed readers may read: the first open transaction or the high
        watermark.
        """
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None:
            return self._high_watermark
        # retention may have passed the first record of an open transaction
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
        """Apply a new configuration; it is used from the next append and the next retention pass
        on.
        """
        # each site compacts its batches alone, so earlier digests would show differences
        if config.is_compacted and not self.config.is_compacted:
            self.digests.drop_from(0)
        self.config = config
        self._apply_config()

    def _apply_config(self) -> None:
        self._limits = BatchLimits.of(self.config)
        self._roll_policy = RollPolicy.of(self.config, jitter=self._roll_jitter)

    def assign_topic_id(self, topic_id: bytes, *, is_new: bool = False) -> None:
        """Write the topic id beside the log, durably; if `is_new`, it becomes durable with the
        log's first flush.
        """
        write_topic_id(self._disk, f"{self.directory}/{PARTITION_METADATA}", topic_id, is_new=is_new)
        self.topic_id = topic_id

    # -- leader epochs -----------------------------------------------------------------------------

    def start_leader_epoch(self, leader_epoch: int) -> None:
        """Record that this replica leads from the log's end on in `leader_epoch`."""
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """The largest epoch at or below `epoch` and the offset after its last record; both -1 when
        unknown.
        """
        return self._epochs.end_of(epoch, self.log_end_offset)

    def divergence(self, epoch: int, offset: int) -> EpochEnd | None:
        """Where the log of a reader leaves this one, if its last record, below `offset`, is of
        `epoch`; None if it does not.
        """
        latest = self._epochs.latest
        # a log without epochs shows no difference; the caller compares the offsets
        if epoch < 0 or latest < 0:
            return None
        # the reader's epoch may be newer: a leader that takes no writes begins no epoch of its own
        end = self.epoch_end_offset(min(epoch, latest))
        return end if end.epoch < epoch or end.end_offset < offset else None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when unknown."""
        return self._epochs.epoch_at(offset)

    def first_offset_since_epoch(self, leader_epoch: int) -> int | None:
        """The start of the first epoch at or above `leader_epoch`; None if the log has no such
        file.
        """
        return self._epochs.start_at_or_above(leader_epoch)
