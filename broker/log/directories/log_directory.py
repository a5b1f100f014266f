"""One log directory: its lock, its identity, its checkpoints and the partition directories in it.

Opened once at a start, by one process: a second one is refused. State from a clean shutdown is
trusted; otherwise logs are recovered partition by partition. Disk errors are raised as
StorageError, never swallowed: `log_store.py` decides what they mean.

Caller: broker/log/directories/log_store.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from broker.log.directories import checkpoints
from broker.log.directories.directory_checkpoints import NO_STARTS, DirectoryCheckpoints, probe
from broker.log.directories.directory_claim import DirectoryClaim
from broker.log.directories.directory_names import DELETED_MARK, FUTURE_MARK, aside_name, is_stray, parse_directory_name
from broker.log.directories.removal import PendingRemovals, remove_files
from broker.log.errors import StorageError, storage_errors
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.log.source_seen import SourceSeen
from broker.settings.core.topic_configs import LogConfig
from runtime.chance import new_uuid
from runtime.disk import Disk
from wire.protocol.ids import TopicPartition

CLOSING_THREADS: Final = 16
"""Number of logs that are flushed and closed at the same time when the broker stops."""

_FILES_AT_A_TIME: Final = 1000

NoteRemovals = Callable[[PendingRemovals, int], None]
"""Called with the time (Unix ms) from which dropped files of a log may be deleted."""


class LogDirectory:
    """A directory of partition logs, in Kafka's layout."""

    def __init__(
        self,
        path: str,
        descriptors: DescriptorCache,
        note_flush: NoteFlush = note_nothing,
        note_removals: NoteRemovals = lambda _removals, _due_ms: None,
    ) -> None:
        self._note_flush = note_flush
        self._note_removals = note_removals
        self.path = path.rstrip("/")
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.notes: list[str] = []
        self.is_clean = False
        self.stray_count = 0
        self._descriptors = descriptors
        self._disk: Disk = descriptors.disk
        self.claim = DirectoryClaim(self.path, self._disk)
        self._checkpoints = DirectoryCheckpoints(self._disk, self.path, self.logs)
        self._needs_sync = False
        self._named_last: PartitionLog | None = None

    # -- opening -----------------------------------------------------------------------------------

    def open(self, *, node_id: int, cluster_id: str) -> None:
        """Lock the directory, check its owner, read the checkpoints. Creates it if it does not
        exist.
        """
        with storage_errors("creating", self.path):
            os.makedirs(self.path, exist_ok=True)
        self.claim.lock()
        try:
            self.claim.check_identity(node_id, cluster_id)
            self.is_clean = self.claim.take_clean_marker()
            self.claim.read_registration()
            self._read_checkpoints()
            self.remove_deleted_directories()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Release the directory to other processes."""
        self.claim.unlock()

    def _read_checkpoints(self) -> None:
        for fault in self._checkpoints.read(self._disk):
            # without recovery points everything is checked; the others are rebuilt by replication
            # and retention
            self.notes.append(f"{fault}; it is ignored")
            if fault.path.endswith(f"/{checkpoints.RECOVERY_POINTS}"):
                self.is_clean = False

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here."""
        with storage_errors("opening", self.path):
            names = [entry.name for entry in self._disk.entries(self.path) if entry.is_directory]
        self.stray_count = sum(map(is_stray, names))
        found = (parse_directory_name(name) for name in names)
        return sorted(partition for partition in found if partition is not None)

    def open_log(self, key: TopicPartition, config: LogConfig, *, now_ms: int, roll_jitter: float) -> PartitionLog:
        """Open an existing partition directory; may run in a thread, `adopt` takes the log over."""
        directory, line = self.directory_of(key), self._checkpoints.line
        log = PartitionLog(
            directory,
            self._descriptors,
            config,
            topic=key.topic,
            partition=key.partition,
            is_clean=self.is_clean,
            recovery_point=line(checkpoints.RECOVERY_POINTS, key) or 0,
            log_start_offset=line(checkpoints.LOG_START_OFFSETS, key) or 0,
            now_ms=now_ms,
            roll_jitter=roll_jitter,
            note_flush=self._note_flush,
        )
        self._read_topic_id(log)
        log.advance_high_watermark(line(checkpoints.HIGH_WATERMARKS, key) or 0)
        log.compacted_to = min(max(log.compacted_to, line(checkpoints.CLEANER_OFFSETS, key) or 0), log.log_end_offset)
        log.thinned_to = max(log.compacted_to, log.thinned_to)
        source_high_watermark = line(checkpoints.SOURCE_HIGH_WATERMARKS, key)
        source_log_epoch = line(checkpoints.SOURCE_LOG_EPOCHS, key)
        if source_high_watermark is not None and source_log_epoch is not None:
            seen_at_ms = line(checkpoints.SOURCE_SEEN_AT, key) or 0
            log.source = SourceSeen(source_high_watermark, seen_at_ms, source_log_epoch)
        return log

    def _read_topic_id(self, log: PartitionLog) -> None:
        """A crash of the machine may leave the file of a new log empty or torn: the log is then one
        without a topic id, as old logs are.
        """
        try:
            log.topic_id = checkpoints.read_topic_id(self._disk, f"{log.directory}/{checkpoints.PARTITION_METADATA}")
        except checkpoints.CorruptCheckpoint as fault:
            log.recovery = log.recovery.with_note(f"{fault}; the log takes the id of the topic of this name")

    # not in `open_log`, which runs in threads: from here on the event loop owns a log
    def adopt(self, log: PartitionLog) -> None:
        """Add an opened log to those of this directory."""
        log.removals.note_due = partial(self._note_removals, log.removals)
        log.save_recovery_point_by(
            partial(self.checkpoint_now, checkpoints.RECOVERY_POINTS),
            partial(self.checkpoint, checkpoints.RECOVERY_POINTS),
        )
        self.logs[TopicPartition(log.topic, log.partition)] = log

    def create_log(
        self, key: TopicPartition, config: LogConfig, *, topic_id: bytes | None, now_ms: int, roll_jitter: float
    ) -> PartitionLog:
        """A new, empty log. Its directory and topic id are durable with its first flush, which is
        due at once.
        """
        directory = self.directory_of(key)
        # before the directory: otherwise a crash could give the new log the old one's offsets
        self._forget_lines_of(key)
        with storage_errors("creating", directory):
            self._disk.make_directory(directory)
        log = PartitionLog(
            directory,
            self._descriptors,
            config,
            topic=key.topic,
            partition=key.partition,
            is_new=True,
            now_ms=now_ms,
            roll_jitter=roll_jitter,
            note_flush=self._note_flush,
        )
        if topic_id is not None:
            self._name_topic(log, topic_id)
        self.adopt(log)
        return log

    def _name_topic(self, log: PartitionLog, topic_id: bytes) -> None:
        """Set the topic id, by a hard link to the file of another partition of the topic if there
        is one: this needs no new file.

        The file is never written in place, so a change through one name does not affect the other.
        """
        named, self._named_last = self._named_last, log
        if named is not None and named.topic_id == topic_id and not named.is_abandoned:
            with contextlib.suppress(OSError):
                files = (f"{one.directory}/{checkpoints.PARTITION_METADATA}" for one in (named, log))
                self._disk.link(*files)
                log.topic_id = topic_id
                return
        log.assign_topic_id(topic_id, is_new=True)

    def _forget_lines_of(self, key: TopicPartition) -> None:
        """After a crash, checkpoint lines of a deleted log must not be applied to a new log of the
        same name.
        """
        if self.is_named(key):
            self.checkpoint_now()

    def directory_of(self, key: TopicPartition) -> str:
        """Path of a partition's directory."""
        return f"{self.path}/{key.topic}-{key.partition}"

    # -- deleting ----------------------------------------------------------------------------------

    def let_go(self, log: PartitionLog, mark: str) -> str:
        """Release a log that is deleted or set aside; return the new name of its directory."""
        key = TopicPartition(log.topic, log.partition)
        del self.logs[key]
        log.abandon()
        return f"{self.path}/{aside_name(key, mark)}"

    def note_names(self) -> None:
        """Record that a directory in here was renamed; a crash of the machine before the next
        `sync` may undo that.
        """
        self._needs_sync = True

    @property
    def needs_sync(self) -> bool:
        """True if some names are not durable yet."""
        return self._needs_sync

    def sync(self) -> None:
        """Make renamed directories durable; may run in a thread."""
        if self._needs_sync:
            # names that change during the sync need another one
            self._needs_sync = False
            try:
                with storage_errors("flushing", self.path):
                    self._disk.fsync_directory(self.path)
            except StorageError:
                self._needs_sync = True
                raise

    def remove_directory(self, path: str) -> None:
        """Remove a partition directory that was renamed before."""
        while not self.remove_some(path, _FILES_AT_A_TIME):
            pass

    def remove_some(self, path: str, files_max: int) -> bool:
        """Remove up to `files_max` files of a directory, and the directory itself after the last
        ones; return whether it is removed.
        """
        with storage_errors("removing", path):
            try:
                names = [entry.name for entry in self._disk.entries(path)]
            except FileNotFoundError:
                return True
            remove_files(self._disk, (f"{path}/{name}" for name in names[:files_max]))
            if len(names) > files_max:
                return False
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove_directory(path)
        return True

    def remove_deleted_directories(self) -> None:
        """Finish deletions that a stop interrupted."""
        with storage_errors("opening", self.path):
            names = [entry.name for entry in self._disk.entries(self.path) if entry.is_directory]
        for name in names:
            if name.endswith(DELETED_MARK) and parse_directory_name(name) is None:
                self.remove_directory(f"{self.path}/{name}")

    # -- checkpoints -------------------------------------------------------------------------------

    def checkpoint_now(self, *names: str, starts: Mapping[TopicPartition, int] = NO_STARTS) -> None:
        """Write these checkpoints (all without names), with the `starts` of logs that are not
        opened yet, blocking the caller.
        """
        self._checkpoints.save_now(*names, starts=starts)

    async def checkpoint(self, *names: str) -> None:
        """Write these checkpoints (all without names) in a thread."""
        await self._checkpoints.save(*names)

    def is_named(self, key: TopicPartition) -> bool:
        """True if a checkpoint has a line for this partition, or will have one."""
        return self._checkpoints.may_name(key)

    def begin_loading(self) -> None:
        """Make checkpoints keep the lines of logs that are not opened yet, until `end_loading`."""
        self._checkpoints.is_loading = True

    def end_loading(self, closed: Collection[TopicPartition]) -> None:
        """Note that all logs are open but the `closed` ones, whose lines stay until a repair."""
        self._checkpoints.is_loading = False
        self._checkpoints.closed = closed

    # -- logs that move here -----------------------------------------------------------------------

    def future_directories(self) -> dict[TopicPartition, str]:
        """Partition directories of unfinished moves into this directory, by partition."""
        with storage_errors("opening", self.path):
            names = [entry.name for entry in self._disk.entries(self.path) if entry.is_directory]
        found = {}
        for name in names:
            stem, _, mark = name.rpartition(".")
            key = parse_directory_name(stem) if mark.endswith(FUTURE_MARK) else None
            if key is not None:
                found[key] = f"{self.path}/{name}"
        return found

    def create_future(
        self, key: TopicPartition, config: LogConfig, *, topic_id: bytes | None, now_ms: int
    ) -> PartitionLog:
        """A new log in a directory that a start does not load as the partition's."""
        mark = f".{new_uuid().hex}{FUTURE_MARK}"
        directory = f"{self.path}/{key.topic}-{key.partition}{mark}"
        with storage_errors("creating", directory):
            self._disk.make_directory(directory)
        log = PartitionLog(
            directory, self._descriptors, config, topic=key.topic, partition=key.partition, is_new=True, now_ms=now_ms
        )
        if topic_id is not None:
            log.assign_topic_id(topic_id, is_new=True)
        return log

    def take_future(
        self,
        key: TopicPartition,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        now_ms: int,
        roll_jitter: float,
    ) -> PartitionLog:
        """Make the directory of a completed and closed move the partition's, and open its log."""
        self._forget_lines_of(key)
        if log_start_offset:
            self.checkpoint_now(checkpoints.LOG_START_OFFSETS, starts={key: log_start_offset})
        directory = self.directory_of(key)
        with storage_errors("renaming", path):
            self._disk.rename(path, directory)
            self._disk.fsync_directory(self.path)
        log = PartitionLog(
            directory,
            self._descriptors,
            config,
            topic=key.topic,
            partition=key.partition,
            is_clean=True,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            roll_jitter=roll_jitter,
            note_flush=self._note_flush,
        )
        self._read_topic_id(log)
        self.adopt(log)
        return log

    def is_readable(self) -> bool:
        """True if the directory exists and is readable."""
        try:
            probe(self._disk, self.path)
        except StorageError:
            return False
        return True

    def free_bytes(self) -> int:
        """Space left on this directory's file system."""
        with storage_errors("measuring", self.path):
            return self._disk.free_bytes(self.path)

    def capacity_bytes(self) -> int:
        """Size of this directory's file system."""
        with storage_errors("measuring", self.path):
            return self._disk.capacity_bytes(self.path)

    def close(self, *, broker_epoch: int) -> None:
        """Close every log, write the checkpoints, and finally the mark of a clean stop. The lock is
        always released.
        """
        try:
            closed: set[tuple[str, int]] = set()
            # A topic that is being created may add its log at the same time.
            while opened := {key: log for key, log in tuple(self.logs.items()) if key not in closed}:
                with ThreadPoolExecutor(CLOSING_THREADS, thread_name_prefix="log-closing") as pool:
                    closings = [pool.submit(log.close, is_name_left=True) for log in opened.values()]
                for closing in closings:
                    closing.result()
                closed.update(opened)
            # one flush for the names of all new logs
            self.note_names()
            self.sync()
            self.checkpoint_now()
            # a log that was never opened after a crash is still to be checked from its recovery
            # point on
            if self.is_clean or not self._checkpoints.closed:
                self.claim.leave_clean_marker(broker_epoch)
        finally:
            self.unlock()

    def abandon(self) -> None:
        """Release everything without writing: the broker failed, or a test simulates a crash."""
        for log in self.logs.values():
            log.abandon()
        self.unlock()
