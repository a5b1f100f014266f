"""Tracks how much of one log is on disk: the recovery point, unflushed data, and whether the disk
has failed permanently.

Everything below the recovery point survives a crash of the machine. An append makes the log dirty.
A flush (shared by all waiting callers, see `flushing.py`) moves the recovery point forward; a
truncation moves it back, on disk first. Names need a flush too: new files and, for a new log, its
own directory and topic id are durable with the first flush. After a failed fsync the log refuses
everything.

Caller: broker/log/partition_log.py, which owns one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager

from broker.log.core.leader_epochs import LeaderEpochs
from broker.log.directories.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, encode_epochs
from broker.log.directories.folder import Folder
from broker.log.errors import DiskFull, StorageError, storage_errors
from broker.log.flushing import FlushWork, GroupFlush, NoteFlush, note_nothing
from broker.log.segments.segment import Segment
from broker.log.segments.segment_list import Segments
from runtime.disk import Disk


class Durability:
    """The recovery point of one log, and everything that a flush must write to disk."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        folder: Folder,
        segments: Segments,
        epochs: LeaderEpochs,
        *,
        end_offset: Callable[[], int],
        recovery_point: int,
        flushed_to: int,
        saved_epochs_version: int,
        is_new: bool,
        has_new_names: bool,
        new_snapshots: Iterable[str] = (),
        note_flush: NoteFlush = note_nothing,
    ) -> None:
        """`flushed_to` is the recovery point without the log start."""
        self.recovery_point = recovery_point
        self._flushed_to = flushed_to
        self.failure: StorageError | None = None
        self.save_recovery_point: Callable[[], None] = lambda: None
        self.save_recovery_point_in_thread: Callable[[], Awaitable[None]] = _save_nothing
        self.settle: Callable[[], None] = lambda: None
        """Makes sure that truncated data stays removed."""
        self.truncations = 0
        self._disk = disk
        self._directory = directory
        self._folder = folder
        self._segments = segments
        self._epochs = epochs
        self._end_offset = end_offset
        self._is_new = is_new
        self._has_new_names = has_new_names
        self._saved_epochs_version = saved_epochs_version
        self._first_unflushed_ms: int | None = None
        self._snapshots = list(new_snapshots)
        self._is_all_wanted = False
        self._bounds: list[int] = []
        self._saved_bounds: list[int] = []
        self._group = GroupFlush(disk, self._prepare, self._finish, self._fail, note_flush)

    # -- what waits --------------------------------------------------------------------------------

    def note_append(self, now_ms: int) -> None:
        """Note that an append has been written."""
        if self._first_unflushed_ms is None:
            self._first_unflushed_ms = now_ms

    def note_names(self, snapshot: str | None = None) -> None:
        """Files were created or renamed; a producer snapshot also waits for its content to be
        durable.
        """
        self._has_new_names = True
        if snapshot is not None:
            self._snapshots.append(snapshot)

    def note_log_start(self, offset: int) -> None:
        """The log begins at `offset` now. Nothing below it must survive, but a crash may restore
        segments below it, so the recovery point on disk waits for the next flush.
        """
        self.recovery_point = max(self.recovery_point, offset)

    def is_due(self, now_ms: int, flush_ms: int) -> bool:
        """True if the oldest unflushed append is `flush_ms` old."""
        return self._first_unflushed_ms is not None and now_ms - self._first_unflushed_ms >= flush_ms

    @property
    def unflushed_since_ms(self) -> int | None:
        """The time of the oldest unflushed append; None if the log has none. Its segment's
        descriptor stays open until then.
        """
        return self._first_unflushed_ms

    @property
    def is_at_rest(self) -> bool:
        """True if no background flush has anything to do: asked of every log every few seconds, and
        thousands are idle.
        """
        return (
            self._first_unflushed_ms is None
            and self.failure is None
            and not self._is_new
            and len(self._segments.all) < 2
        )

    @property
    def has_unflushed_segments(self) -> bool:
        """True if a segment was rolled, or the log created, since the last flush; a background
        flush follows under any policy.
        """
        return self._is_new or any(segment.is_dirty for segment in self._rolled)

    @property
    def _rolled(self) -> list[Segment]:
        return self._segments.all[:-1]

    @property
    def is_clean(self) -> bool:
        """True if nothing is unflushed: closing needs no flush."""
        return (
            not (self._has_new_names or self._is_new or self._snapshots)
            and self.recovery_point == self._end_offset()
            and self._saved_epochs_version == self._epochs.version
            and not any(segment.is_dirty for segment in self._segments.all)
        )

    # -- flushing ----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Make everything appended so far durable. Others' flushes are joined."""
        self.refuse_when_failed()
        target, truncations = self._end_offset(), self.truncations
        self._is_all_wanted = True
        # an empty new log is already at its target, but its names are not durable
        if self._is_new:
            await self._group.flush(lambda: not self._is_new)
        await self._group.flush(lambda: self.recovery_point >= target or self.truncations != truncations)

    async def flush_rolled(self) -> None:
        """Flush files that get no more writes: rolled segments, and the names of a new log.

        The active segment is left alone: while its pages are flushed, an append to it would block,
        and with it the event loop.
        """
        self.refuse_when_failed()
        base_offset, truncations = self._segments.active.base_offset, self.truncations

        def is_done() -> bool:
            # the next flush handles segments that are rolled during this wait
            is_waiting = self._is_new or any(
                rolled.is_dirty for rolled in self._rolled if rolled.base_offset < base_offset
            )
            return not is_waiting or self.truncations != truncations

        await self._group.flush(is_done)

    def flush_now(self, *, is_name_left: bool = False) -> None:
        """Like `flush`, but blocks the caller. With `is_name_left`, the caller makes the name of a
        new log durable.
        """
        self.refuse_when_failed()
        self._is_all_wanted = True
        self._group.flush_now(is_name_left=is_name_left)

    def sync_names(self) -> None:
        """Make new names durable before other work depends on them; may run in a thread, so the
        next flush does it again.
        """
        if self._has_new_names:
            with storage_errors("flushing", self._directory):
                self._disk.fsync_directory(self._directory)

    def _prepare(self) -> FlushWork:
        if self._folder.is_let_go:
            # opening a file could create one, in a directory that may have become another log's
            raise StorageError("flushing", self._directory, "the log is deleted, or its directory is offline")
        active = self._segments.active
        is_all = self._is_all_wanted
        # without `is_all` the active segment is not flushed, so the point stops at its start
        end_offset = (
            self._end_offset() if is_all else max(self.recovery_point, min(active.base_offset, self._end_offset()))
        )
        # a crash may lose the whole epoch that begins in the unflushed part: it is saved with its
        # records
        epochs = [entry for entry in self._epochs.entries if is_all or entry.start_offset < end_offset]
        has_all_epochs = len(epochs) == len(self._epochs.entries)
        is_epochs_new = self._epochs.version != self._saved_epochs_version and (has_all_epochs or bool(epochs))
        # a truncated log is not dirty but has something to flush: only a new, empty one has nothing
        is_empty = self._is_new and not active.is_dirty and not self.truncations
        metadata = f"{self._directory}/{PARTITION_METADATA}"
        rolled = [segment for segment in self._rolled if segment.is_dirty]
        flushed = [*rolled, active] if is_all and not is_empty else rolled
        for segment in flushed:
            segment.transactions.write()
        files = _acquired(flushed)
        # after the files are open: a flush that cannot begin leaves all its work to the next one
        has_new_names, self._has_new_names, self._is_all_wanted = self._has_new_names, False, False
        unflushed_since_ms = self._first_unflushed_ms
        if is_all:
            self._first_unflushed_ms = None
        return FlushWork(
            directory=self._directory,
            end_offset=end_offset,
            truncations=self.truncations,
            active=files[len(rolled) :],
            rolled=files[: len(rolled)],
            unflushed_since_ms=unflushed_since_ms,
            small_files=[metadata, *self._snapshots] if self._is_new else list(self._snapshots),
            epochs=(f"{self._directory}/{LEADER_EPOCHS}", encode_epochs(epochs)) if is_epochs_new else None,
            epochs_version=self._epochs.version if has_all_epochs else self._saved_epochs_version,
            has_new_names=has_new_names,
            folder=self._folder,
            settle=self.settle,
            is_new_log=self._is_new,
        )

    def _finish(self, work: FlushWork) -> None:
        # before the check for truncations: names stay durable after a truncation
        if work.is_new_log:
            self._is_new = False
        # A truncation has changed the end since the flush, so the next flush moves the recovery
        # point.
        if work.truncations != self.truncations:
            self._put_back(work)
            return
        self.recovery_point = self._flushed_to = max(self.recovery_point, work.end_offset)
        self._saved_epochs_version = work.epochs_version
        self._snapshots = [path for path in self._snapshots if path not in work.small_files]
        for segment, _ in work.rolled:
            segment.mark_flushed()
        for segment, _ in work.active:
            # an append during the flush leaves the segment dirty
            if segment is self._segments.active and self._end_offset() == work.end_offset:
                segment.mark_flushed()

    def _fail(self, work: FlushWork, failure: StorageError) -> None:
        # no space for a small file is not a lost write: the log continues and the flush is repeated
        if not (isinstance(failure, DiskFull) and failure.operation == "writing"):
            self.failure = self.failure or failure
        self._has_new_names = True
        self._put_back(work)

    def _put_back(self, work: FlushWork) -> None:
        """The flush did not move the recovery point: its appends are still due by flush.ms."""
        if work.unflushed_since_ms is not None:
            self._first_unflushed_ms = work.unflushed_since_ms

    # -- truncating --------------------------------------------------------------------------------

    def begin_truncation(self, offset: int) -> None:
        """Lower the recovery point, also on disk, before everything from `offset` on is removed."""
        self.truncations += 1
        self._has_new_names = True
        if self.recovery_point > offset:
            # with the old recovery point on disk, a crash after new appends would leave those
            # unchecked
            self.recovery_point = offset
            self._flushed_to = min(self._flushed_to, offset)
            # `lowered` has already written an offset at or below this one
            if not any(bound <= offset for bound in self._saved_bounds):
                self.save_recovery_point()

    @property
    def recovery_point_to_save(self) -> int:
        """The recovery point for a checkpoint: lower than the real one while a truncation is
        running, and when the log start has passed unflushed segments.
        """
        return min(self._flushed_to, *self._bounds) if self._bounds else self._flushed_to

    @property
    def is_lowered(self) -> bool:
        """True if a truncation is running that finishes in a thread."""
        return bool(self._bounds)

    @asynccontextmanager
    async def lowered(self, offset: int) -> AsyncIterator[None]:
        """Keep the recovery point on disk at or below `offset` while the body runs, also if a flush
        passes it. StorageError before it.
        """
        self.refuse_when_failed()
        # before the save, which reads it, and for concurrent checkpoints
        self._bounds.append(offset)
        try:
            if self.recovery_point > offset:
                await self.save_recovery_point_in_thread()
                self._saved_bounds.append(offset)
            yield
        finally:
            self._bounds.remove(offset)
            if offset in self._saved_bounds:
                self._saved_bounds.remove(offset)

    def end_truncation(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        # snapshots up to the end stay, so they are still to be flushed
        self.recovery_point = min(self.recovery_point, end_offset)
        self._flushed_to = min(self._flushed_to, end_offset)

    # -- failing -----------------------------------------------------------------------------------

    def refuse_when_failed(self) -> None:
        """StorageError once the disk failed."""
        if self.failure is not None:
            raise StorageError("using", self._directory, f"the log failed before: {self.failure}")


def _acquired(segments: list[Segment]) -> list[tuple[Segment, int]]:
    """The open descriptors of all these segments, or none of them and a StorageError."""
    with ExitStack() as on_failure:
        files = []
        for segment in segments:
            files.append((segment, segment.file.acquire()))
            on_failure.callback(segment.file.release)
        on_failure.pop_all()
    return files


async def _save_nothing() -> None:
    """Does nothing: for a log whose recovery point is in no checkpoint."""
