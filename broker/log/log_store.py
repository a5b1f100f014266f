"""All logs of a broker over its log directories: loads them side by side, creates, deletes, checkpoints, closes.

The shell calls `open` and `load` before it serves, `maintain` and `compact` every few seconds to
minutes, the checkpoints once a minute, `close` at
the end. Everything runs on the event loop's thread except what `load` does in its own bounded pool.

Callers: the broker's shell (replicas, main).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.core.topic_configs import LogConfig
from broker.log.checkpoints import TopicPartition
from broker.log.cleaner import clean
from broker.log.compaction import plan_compaction, swap_in
from broker.log.descriptors import DescriptorCache
from broker.log.errors import StorageError
from broker.log.log_directory import LogDirectory
from broker.log.partition_log import PartitionLog
from broker.log.recovery import RecoveryReport
from runtime.disk import Disk
from wire.record_batch import InvalidBatch

RECOVERY_THREADS: Final = 4
"""Logs that are opened at the same time (num.recovery.threads.per.data.dir)."""
REMOVALS_PER_TURN: Final = 8

IsCopy = Callable[[str], bool]
"""Whether a topic's logs are copies of another site's."""


def never_a_copy(_topic: str) -> bool:
    """For sites without links."""
    return False


class LogStore:
    """The partition logs of one broker. `roll_jitter` gives a share between 0 and 1 for each new or opened log."""

    def __init__(
        self,
        paths: Sequence[str],
        disk: Disk,
        *,
        now_ms: Callable[[], int],
        roll_jitter: Callable[[], float] = lambda: 0.0,
        recovery_threads: int = RECOVERY_THREADS,
    ) -> None:
        self._disk = disk
        self._descriptors = DescriptorCache(disk)
        self._uncleanable: set[TopicPartition] = set()
        self.directories = [LogDirectory(path, self._descriptors) for path in paths]
        self._now_ms = now_ms
        self._roll_jitter = roll_jitter
        self._threads = recovery_threads
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._removals: list[tuple[int, LogDirectory, str]] = []

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(tuple(self._logs.values()))

    def open(self, *, node_id: int, cluster_id: str) -> None:
        """Lock and read all directories; either all or none."""
        opened: list[LogDirectory] = []
        try:
            for directory in self.directories:
                directory.open(node_id=node_id, cluster_id=cluster_id)
                opened.append(directory)
        except StorageError:
            for directory in opened:
                directory.unlock()
            raise

    def load(self, config_of: Callable[[str], LogConfig]) -> list[RecoveryReport]:
        """Open every log there is, several at a time; the reports of those that were checked, dropped or mended.

        Blocks: call it before serving, or from a thread. Raises the first StorageError.
        """
        reports = []
        with ThreadPoolExecutor(self._threads, thread_name_prefix="log-recovery") as pool:
            waiting = []
            for directory in self.directories:
                directory.begin_loading()
                for key in directory.partitions():
                    jitter = self._roll_jitter()
                    config = config_of(key.topic)
                    waiting.append((directory, pool.submit(self._open_log, directory, key, config, jitter)))
            for directory, future in waiting:
                log = future.result()
                self._take(directory, log)
                if log.recovery.dropped or log.recovery.notes or not log.recovery.is_clean:
                    reports.append(log.recovery)
        for directory in self.directories:
            directory.end_loading()
        return reports

    def _open_log(self, directory: LogDirectory, key: TopicPartition, config: LogConfig, jitter: float) -> PartitionLog:
        return directory.open_log(key, config, now_ms=self._now_ms(), roll_jitter=jitter)

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

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log, None when there is none."""
        return self._logs.get(TopicPartition(topic, partition))

    def open_or_create(self, topic: str, partition: int, *, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """The partition's log with this configuration; a log of an older topic of the same name is deleted first."""
        key = TopicPartition(topic, partition)
        log = self._logs.get(key)
        if log is not None and log.topic_id not in (None, topic_id):
            self.delete(log)
            log = None
        if log is None:
            directory = self._least_loaded()
            log = directory.create_log(
                key, config, topic_id=topic_id, now_ms=self._now_ms(), roll_jitter=self._roll_jitter()
            )
            self._logs[key] = log
            self._homes[key] = directory
            return log
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
        log.update_config(config)
        return log

    def _least_loaded(self) -> LogDirectory:
        return min(self.directories, key=lambda directory: (len(directory.logs), -directory.free_bytes()))

    def delete(self, log: PartitionLog) -> None:
        """Take a log away; its files go after file.delete.delay.ms."""
        key = TopicPartition(log.topic, log.partition)
        del self._logs[key]
        directory = self._homes.pop(key)
        path = directory.delete_log(log)
        self._removals.append((self._now_ms() + log.config.file_delete_delay_ms, directory, path))

    def delete_strays(self, topics: Mapping[str, bytes]) -> list[PartitionLog]:
        """Delete logs of topics that do not exist any more, or exist again under another id; those that were deleted."""
        strays = [
            log
            for log in self
            if log.topic not in topics or (log.topic_id is not None and log.topic_id != topics[log.topic])
        ]
        for log in strays:
            self.delete(log)
        return strays

    def home_of(self, log: PartitionLog) -> str:
        """Path of the log directory that holds `log`."""
        return self._homes[TopicPartition(log.topic, log.partition)].path

    # -- regular work -----------------------------------------------------------------------------------------------

    async def maintain(self, producer_expiration_ms: int, *, is_copy: IsCopy = never_a_copy) -> list[str]:
        """One pass of retention, rolling by time, producer expiry and removal of files; one sentence for each deletion.

        A topic that is a copy of another site's keeps what that one keeps: only its log start counts, which follows.
        Gives the loop back between logs. Raises the first StorageError, after all other logs had their turn.
        """
        deletions: list[str] = []
        failure: StorageError | None = None
        for log in self:
            try:
                reason = self._maintain_log(log, producer_expiration_ms, is_copy=is_copy(log.topic))
            except StorageError as error:
                failure = failure or error
                continue
            if reason:
                deletions.append(f"old segments of {log.topic}-{log.partition} are deleted: {reason}")
            await asyncio.sleep(0)
        await self._remove_directories()
        if failure is not None:
            raise failure
        return deletions

    def _maintain_log(self, log: PartitionLog, producer_expiration_ms: int, *, is_copy: bool) -> str:
        now_ms = self._now_ms()
        log.remove_deleted_files(now_ms)
        log.producers.expire(now_ms, producer_expiration_ms)
        log.roll_if_due(now_ms)
        return log.delete_old_segments(now_ms, is_copy=is_copy)

    async def _remove_directories(self) -> None:
        now_ms = self._now_ms()
        due = [removal for removal in self._removals if removal[0] <= now_ms][:REMOVALS_PER_TURN]
        for removal in due:
            self._removals.remove(removal)
            await asyncio.to_thread(removal[1].remove_directory, removal[2])

    async def compact(self, *, is_copy: IsCopy = never_a_copy) -> list[str]:
        """Compact logs that have new inactive segments, one after the other in a thread; one sentence for each.

        Copies of another site's topics stay byte for byte as they came.
        A log with a batch that does not decode is left alone from then on, and said once.
        """
        sentences: list[str] = []
        for log in self:
            key = TopicPartition(log.topic, log.partition)
            may_change = log.config.is_compacted and not is_copy(log.topic)
            plan = plan_compaction(log, self._now_ms()) if may_change else None
            if plan is None or key in self._uncleanable:
                continue
            try:
                result = await asyncio.to_thread(clean, plan, self._disk)
            except InvalidBatch as fault:
                self._uncleanable.add(key)
                sentences.append(f"{log.topic}-{log.partition} cannot be compacted: {fault}")
                continue
            if swap_in(log, plan, result, self._descriptors, self._now_ms()):
                sizes = f"{result.bytes_before} bytes became {result.bytes_after}"
                sentences.append(f"{log.topic}-{log.partition} is compacted up to {result.cleaned_to}: {sizes}")
        return sentences

    async def flush_due(self) -> None:
        """Flush logs whose flush.ms is over, and those with rolled segments; recovery points follow."""
        now_ms = self._now_ms()
        due = [log for log in self if log.is_flush_due(now_ms) or log.has_unflushed_segments]
        results = await asyncio.gather(*(log.flush() for log in due), return_exceptions=True)
        for log, result in zip(due, results, strict=True):
            # a log that was deleted meanwhile has no files to flush
            if isinstance(result, BaseException) and not log.is_abandoned:
                raise result

    def checkpoint(self) -> None:
        """Write recovery points, high watermarks and log starts of all directories."""
        for directory in self.directories:
            directory.checkpoint_all()

    def close(self, *, broker_epoch: int = -1) -> None:
        """Stop cleanly: the next start needs no recovery. Raises the first StorageError, after all directories were closed."""
        failure: StorageError | None = None
        for directory in self.directories:
            try:
                directory.close(broker_epoch=broker_epoch)
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Let go of everything without writing."""
        for directory in self.directories:
            directory.abandon()
