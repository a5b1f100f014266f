"""Opens all logs of a broker at its start, several at a time: locks the directories, completes
interrupted moves, and takes directories whose disk fails offline.

Caller: broker/log/directories/log_store.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_moving import finish_moves
from broker.log.directories.log_placement import LogPlacement
from broker.log.errors import CorruptLog, StorageError
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.partition_log import PartitionLog
from broker.log.recovery import RecoveryReport
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk
from wire.protocol.ids import TopicPartition

RECOVERY_THREADS: Final = 4
"""Logs that are opened at the same time (num.recovery.threads.per.data.dir)."""


class LogLoading(LogPlacement):
    """The logs over their directories, and how they are opened."""

    def __init__(
        self,
        paths: Sequence[str],
        disk: Disk,
        *,
        now_ms: Callable[[], int],
        roll_jitter: Callable[[], float] = lambda: 0.0,
        recovery_threads: int = RECOVERY_THREADS,
        note_flush: NoteFlush = note_nothing,
    ) -> None:
        super().__init__(paths, disk, now_ms=now_ms, roll_jitter=roll_jitter, note_flush=note_flush)
        self._threads = recovery_threads
        self.dropped_bytes = self.dropped_kept_bytes = 0
        """What recovery dropped, and how much of it is kept in files of truncated records."""

    def open(self, *, node_id: int, cluster_id: str) -> None:
        """Lock and read all directories. A directory whose disk fails is left out, unless it is the
        only one.
        """
        opened: list[LogDirectory] = []
        try:
            for directory in tuple(self.directories):
                try:
                    directory.open(node_id=node_id, cluster_id=cluster_id)
                    opened.append(directory)
                except StorageError as failure:
                    self._leave_out(directory, failure)
        except StorageError:
            for directory in opened:
                directory.unlock()
            raise

    def _leave_out(self, directory: LogDirectory, failure: StorageError) -> None:
        """Raise the failure if it is not a disk failure, or if no directory remains."""
        if not failure.is_disk_failure or self.directories == [directory]:
            raise failure
        self._fail(directory, failure)

    def load(self, config_of: Callable[[str], LogConfig]) -> list[RecoveryReport]:
        """Open every log, several at a time; return the reports of those that were checked,
        truncated or repaired.

        Blocks: call it before serving, or from a thread. A directory whose disk fails goes offline,
        and so does a log that is too damaged to be opened; raises the first StorageError of another
        kind, and the failure of the last directory.
        """
        for sentence in finish_moves(self.directories, self._disk, may_forget=not self.offline):
            self.directories[0].notes.append(sentence)
        waiting: list[tuple[LogDirectory, TopicPartition, Future[PartitionLog]]] = []
        with ThreadPoolExecutor(self._threads, thread_name_prefix="log-recovery") as pool:
            for directory in tuple(self.directories):
                try:
                    waiting += [
                        (directory, key, pool.submit(call)) for key, call in self._openings(directory, config_of)
                    ]
                except StorageError as failure:
                    self._leave_out(directory, failure)
        reports = [report for opened in waiting if (report := self._loaded(*opened)) is not None]
        self.dropped_bytes += sum(tail.dropped_bytes for report in reports for tail in report.dropped)
        self.dropped_kept_bytes += sum(tail.kept_bytes for report in reports for tail in report.dropped)
        for directory in self.directories:
            directory.end_loading([key for home, key, _ in waiting if home is directory and key in self._damaged])
        return reports

    def _openings(
        self, directory: LogDirectory, config_of: Callable[[str], LogConfig]
    ) -> list[tuple[TopicPartition, Callable[[], PartitionLog]]]:
        directory.begin_loading()
        return [
            (key, partial(self._open_log, directory, key, config_of(key.topic), self._roll_jitter()))
            for key in directory.partitions()
        ]

    def _open_log(self, directory: LogDirectory, key: TopicPartition, config: LogConfig, jitter: float) -> PartitionLog:
        return directory.open_log(key, config, now_ms=self._now_ms(), roll_jitter=jitter)

    def _loaded(
        self, directory: LogDirectory, key: TopicPartition, future: Future[PartitionLog]
    ) -> RecoveryReport | None:
        try:
            log = future.result()
        except CorruptLog as damage:
            # For this partition alone: another replica leads it. The files stay, because an empty
            # log in their place would hide the loss.
            self._damaged[key] = damage
            directory.notes.append(
                f"{key} is offline, because its log is damaged ({damage}): move {directory.directory_of(key)} away and "
                "restart, and the broker copies the log from another replica"
            )
            return None
        except StorageError as failure:
            if directory in self.directories:
                self._leave_out(directory, failure)
            return None
        if directory not in self.directories:
            log.abandon()
            self._offline_logs.add(TopicPartition(log.topic, log.partition))
            return None
        self._take(directory, log)
        report = log.recovery
        return report if report.dropped or report.notes or not report.is_clean else None

    def _take(self, directory: LogDirectory, log: PartitionLog) -> None:
        key = TopicPartition(log.topic, log.partition)
        if key in self._logs:
            raise StorageError(
                "opening",
                log.directory,
                f"the same partition is also in {self._logs[key].directory}; remove one of them",
            )
        directory.adopt(log)
        self._logs[key] = log
        self._homes[key] = directory

    @property
    def stray_count(self) -> int:
        """The folders of logs that are set aside: those found at the start, and those since."""
        return sum(directory.stray_count for directory in self.directories)

    @property
    def notes(self) -> list[str]:
        """The findings of opening and loading that concern no single log, one sentence each."""
        return [note for directory in self.directories for note in directory.notes]
