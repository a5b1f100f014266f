"""The placement of logs in directories: logs are created, deleted and marked for a move, and go
offline with a directory whose disk fails.

Decisions about logs run on the event loop's thread; renaming and removing run in threads
(`deletions.py`).

Caller: broker/log/directories/log_store.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.log.directories.deletions import Deletions
from broker.log.directories.directory_names import DELETED_MARK, STRAY_MARK
from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_moving import Move
from broker.log.errors import CorruptLog, DirectoryOffline, StorageError, storage_errors
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.log.threads import in_thread
from broker.metadata.core.topic_images import TopicImage
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk
from wire.protocol.ids import TopicPartition

NEARLY_FULL_SHARE: Final = 0.05
"""A directory with less of its space free than this gets no new log while another has more."""


class DirectoryFailure(NamedTuple):
    """A directory that went offline, and the partitions that went with it."""

    path: str
    reason: str
    partitions: tuple[TopicPartition, ...]


class LogPlacement:
    """The partition logs of one broker over its directories. `roll_jitter` gives a share between 0
    and 1 for each new or opened log.
    """

    def __init__(
        self,
        paths: Sequence[str],
        disk: Disk,
        *,
        now_ms: Callable[[], int],
        roll_jitter: Callable[[], float] = lambda: 0.0,
        note_flush: NoteFlush = note_nothing,
    ) -> None:
        self._disk = disk
        self._descriptors = DescriptorCache(disk)
        self._deletions = Deletions(disk, now_ms=now_ms)
        self.directories = [
            LogDirectory(path, self._descriptors, note_flush, self._deletions.add_files) for path in paths
        ]
        self.offline: dict[str, str] = {}
        self._failure_listeners: list[Callable[[DirectoryFailure], None]] = []
        self._now_ms = now_ms
        self._roll_jitter = roll_jitter
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._offline_logs: set[TopicPartition] = set()
        self._damaged: dict[TopicPartition, CorruptLog] = {}
        """The logs that a start could not open; their files stay as they are."""
        self._wanted_homes: dict[TopicPartition, str] = {}
        self.moves: dict[TopicPartition, Move] = {}

    def __len__(self) -> int:
        return len(self._logs)

    # a copy: logs are created and deleted while a caller awaits between two of them
    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(tuple(self._logs.values()))

    # -- failing -----------------------------------------------------------------------------------

    def note_failure(self, error: StorageError) -> None:
        """Take the directory of a log offline and call the listeners, if the disk made the
        operation on the log fail.
        """
        if not error.is_disk_failure:
            return
        for directory in tuple(self.directories):
            is_here = error.path == directory.path or error.path.startswith(directory.path + "/")
            # a missing file in a healthy directory is a log that was deleted meanwhile, not a
            # failed disk
            if is_here and not (error.is_missing_file and directory.is_readable()):
                self._fail(directory, error)

    def _fail(self, directory: LogDirectory, error: StorageError) -> None:
        self.directories.remove(directory)
        self.offline[directory.path] = str(error)
        gone = tuple(key for key, home in self._homes.items() if home is directory)
        for key in [key for key, move in self.moves.items() if move.target is directory or key in gone]:
            # if the target itself has failed, its files stay
            self._drop_move(key, remove=self.moves[key].target is not directory)
        for key in gone:
            del self._logs[key], self._homes[key]
        self._offline_logs.update(gone)
        # before the listeners: they must not find a log whose files are missing
        directory.abandon()
        self._deletions.forget(directory)
        failure = DirectoryFailure(directory.path, str(error), gone)
        for listener in self._failure_listeners:
            listener(failure)

    def on_failure(self, listener: Callable[[DirectoryFailure], None]) -> None:
        """Call `listener` when a directory has gone offline."""
        self._failure_listeners.append(listener)

    @property
    def offline_count(self) -> int:
        """Partitions that went offline with their directories, or whose damaged logs a start could
        not open.
        """
        return len(self._offline_logs) + len(self._damaged)

    def is_offline(self, topic: str, partition: int) -> bool:
        """True if the partition's log went offline with its directory, or is too damaged to be
        opened.
        """
        key = TopicPartition(topic, partition)
        return key in self._offline_logs or key in self._damaged

    # -- logs --------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log; None if no directory has it."""
        return self._logs.get(TopicPartition(topic, partition))

    def open_or_create(
        self, topic: str, partition: int, *, topic_id: bytes, config: LogConfig, is_new: bool = True
    ) -> PartitionLog:
        """The partition's log with this configuration; a log of an older topic of the same name is
        deleted first.

        Without `is_new`, a missing partition may be in an offline directory: then DirectoryOffline
        is raised. CorruptLog if a start could not open the log.
        """
        key = TopicPartition(topic, partition)
        if key in self._damaged:
            raise self._damaged[key]
        log = self._logs.get(key)
        if log is not None and log.topic_id not in (None, topic_id):
            self.delete(log)
            log = None
        if log is None:
            # an existing partition may be on the failed disk: an empty log instead would hide its
            # records
            if self.offline and (key in self._offline_logs or not is_new):
                raise DirectoryOffline(", ".join(self.offline))
            return self._create(key, topic_id, config)
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
        log.update_config(config)
        return log

    def _create(self, key: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog:
        directory = self.directory_at(self._wanted_homes.pop(key, "")) or self._least_loaded()
        # the old log's directory may still have the name, until its thread has renamed it
        self._deletions.put_aside_now(directory.directory_of(key))
        log = directory.create_log(
            key, config, topic_id=topic_id, now_ms=self._now_ms(), roll_jitter=self._roll_jitter()
        )
        self._logs[key] = log
        self._homes[key] = directory
        return log

    def _least_loaded(self) -> LogDirectory:
        if len(self.directories) == 1:
            return self.directories[0]
        # no statfs if there is no choice
        free = {directory: directory.free_bytes() for directory in self.directories}
        roomy = [directory for directory in free if free[directory] > NEARLY_FULL_SHARE * directory.capacity_bytes()]
        coming = [move.target for move in self.moves.values()]
        # moving logs count too: otherwise many moves at once would all choose the same target
        return min(roomy or free, key=lambda found: (len(found.logs) + coming.count(found), -free[found]))

    def directory_at(self, path: str) -> LogDirectory | None:
        """The log directory with this path; None if it does not exist or is offline."""
        wanted = path.rstrip("/")
        return next((directory for directory in self.directories if directory.path == wanted), None)

    def delete(self, log: PartitionLog) -> None:
        """Delete a log: its directory is renamed within moments, and removed after
        file.delete.delay.ms.

        A crash before that restores the log under its old name: it is a stray at the next start.
        """
        directory, target = self._let_go(log, DELETED_MARK)
        due_ms = self._now_ms() + log.config.file_delete_delay_ms
        self._deletions.add_log_directory(directory, log.folder, log.directory, target, due_ms=due_ms)

    def set_aside(self, log: PartitionLog) -> None:
        """Like `delete`, but the renamed directory is kept until a person removes it."""
        directory, target = self._let_go(log, STRAY_MARK)
        self._deletions.add_log_directory(directory, log.folder, log.directory, target, due_ms=None)
        directory.stray_count += 1

    def remove_file(self, path: str) -> None:
        """Remove a file that belongs to no log, within moments; does nothing if it does not
        exist.
        """
        self._deletions.add_file(path)

    def _delete_now(self, log: PartitionLog) -> None:
        """Like `delete`, but durable and blocking: for cases in which a restored log would be a
        second one of the same name.
        """
        directory, target = self._let_go(log, DELETED_MARK)
        with log.folder.held(), storage_errors("deleting", log.directory):
            self._disk.rename(log.directory, target)
        # durable: the copy takes the same name, and after a crash there must not be two
        directory.note_names()
        directory.sync()
        self._deletions.add_directory(directory, target, due_ms=self._now_ms() + log.config.file_delete_delay_ms)

    def _let_go(self, log: PartitionLog, mark: str) -> tuple[LogDirectory, str]:
        key = TopicPartition(log.topic, log.partition)
        if key in self.moves:
            self._drop_move(key)
        del self._logs[key]
        directory = self._homes.pop(key)
        return directory, directory.let_go(log, mark)

    async def make_way(self, topics: Iterable[TopicImage], *, node_id: int) -> None:
        """Remove the remains of former logs of the same name, before logs of these topics are
        created.

        Logs of older topics are deleted, directory names become free, and checkpoint lines are
        removed, all in threads. `open_or_create` does the rest and blocks the loop; it also does
        all of this after a disk failure here, which is recorded.
        """
        missing = []
        for topic in topics:
            for partition in topic.partitions.values():
                key = TopicPartition(topic.name, partition.index)
                log = self._logs.get(key)
                if node_id not in partition.replicas or (log is not None and log.topic_id == topic.topic_id):
                    continue
                if log is not None and log.topic_id is None:
                    await self._give_topic_id(log, topic.topic_id)
                    continue
                if log is not None:
                    self.delete(log)
                missing.append(key)
        for directory in tuple(self.directories):
            try:
                if any(self._deletions.is_taken(directory.directory_of(key)) for key in missing):
                    await self._deletions.put_aside()
                if any(directory.is_named(key) for key in missing):
                    await directory.checkpoint()
            except StorageError as error:
                self.note_failure(error)

    async def _give_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        try:
            await in_thread(partial(log.assign_topic_id, topic_id))
        except StorageError as error:
            self.note_failure(error)

    def strays(self, topics: Mapping[str, bytes], *, spared: Collection[str] = ()) -> list[PartitionLog]:
        """Logs of topics that were deleted, or that exist under another id.

        The topics in `spared` may or may not exist: their logs are none.
        """
        return [
            log
            for log in self
            if log.topic not in spared
            and (log.topic not in topics or (log.topic_id is not None and log.topic_id != topics[log.topic]))
        ]

    def home_of(self, log: PartitionLog) -> str:
        """Path of the log directory that holds `log`."""
        return self._homes[TopicPartition(log.topic, log.partition)].path

    def registration_of(self, log: PartitionLog) -> int | None:
        """The newest registration of this broker that the log's directory has handled, None if that
        is not known: see `DirectoryClaim.registration`.
        """
        return self._homes[TopicPartition(log.topic, log.partition)].claim.registration

    async def note_registration(self, zxid: int) -> None:
        """Record that all directories have handled this registration. Deletions so far are durable
        first: after a crash in between they are done again.
        """
        if not zxid or all(
            (known := directory.claim.registration) is not None and known >= zxid for directory in self.directories
        ):
            return
        try:
            await self._deletions.put_aside()
        except StorageError as error:
            self.note_failure(error)
        for directory in tuple(self.directories):
            try:
                await in_thread(directory.sync)
                await in_thread(partial(directory.claim.note_registration, zxid))
            except StorageError as error:
                self.note_failure(error)

    # -- moving ------------------------------------------------------------------------------------

    def wish_home(self, topic: str, partition: int, directory: LogDirectory) -> bool:
        """Move the partition's log to `directory`, or create it there later; return True if the log
        exists here.

        A move to another directory is cancelled; if `directory` already has the log, it stays.
        """
        key = TopicPartition(topic, partition)
        log = self._logs.get(key)
        if log is None:
            self._wanted_homes[key] = directory.path
            return False
        move = self.moves.get(key)
        if move is not None and move.target is not directory:
            self._drop_move(key)
        if key not in self.moves and self._homes[key] is not directory:
            self.moves[key] = Move(log, directory)
        return True

    def _drop_move(self, key: TopicPartition, *, remove: bool = True) -> None:
        move = self.moves.pop(key)
        move.is_cancelled = True
        if move.future is not None:
            move.future.abandon()
            if remove:
                self._deletions.add_directory(move.target, move.future.directory, due_ms=self._now_ms())
