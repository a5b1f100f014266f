"""All logs of a broker in its log directories: moves, maintains, flushes, checkpoints and closes
them. `log_loading.py` opens them at a start, `log_placement.py` creates and deletes them.

The broker calls `open` and `load` before it serves, `remove_due`, `maintain`, `compact` and `move`
every second to few minutes, the checkpoints once a minute, and `close` at the end. Decisions about
logs run on the event loop's thread; slow disk work (flushing, renaming, removing, cleaning) runs in
threads, `load` and `close` in their own bounded pools.

A directory whose disk fails is taken offline, at a start or later (`note_failure`): its logs are
released, and the others continue to serve. When the last one has failed, the broker ends.

Callers: the broker's shell (replicas, main).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from broker.log.cleaning.log_cleaning import Clean, LogCleaning, in_a_thread
from broker.log.core.batch_checks import BatchRejected
from broker.log.core.retention import NOTHING_HELD, Held, HeldSegments, RetentionHold
from broker.log.directories import checkpoints
from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_loading import RECOVERY_THREADS, LogLoading
from broker.log.directories.log_moving import Move, Mover
from broker.log.errors import StorageError
from broker.log.flushing import NoteFlush, note_nothing
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import unflushed_logs_max
from broker.log.threads import in_thread
from runtime.disk import Disk

LOGS_PER_TURN: Final = 500
"""The number of logs that are checked before the event loop turns to others."""
THINNED_PER_CHECKPOINT: Final = 500
"""Logs of which one checkpoint saves how far they are compacted."""
FLUSHES_AT_A_TIME: Final = 32

IsCopy = Callable[[str], bool]
HoldOf = Callable[[str, int], RetentionHold | None]
"""Returns the hold on the logs of a partition; None without one."""


def no_hold(_topic: str, _partition: int) -> RetentionHold | None:
    """No hold: topics keep only what their own limits allow."""
    return None


def never_a_copy(_topic: str) -> bool:
    """Treat no log as a copy: for sites without links."""
    return False


class LogStore(LogLoading):
    """The partition logs of one broker, and the work on them (see the module)."""

    def __init__(
        self,
        paths: Sequence[str],
        disk: Disk,
        *,
        now_ms: Callable[[], int],
        roll_jitter: Callable[[], float] = lambda: 0.0,
        recovery_threads: int = RECOVERY_THREADS,
        clean: Clean | None = None,
        note_flush: NoteFlush = note_nothing,
    ) -> None:
        super().__init__(
            paths,
            disk,
            now_ms=now_ms,
            roll_jitter=roll_jitter,
            recovery_threads=recovery_threads,
            note_flush=note_flush,
        )
        self._mover = Mover(disk, now_ms=now_ms)
        self.unflushed_max = unflushed_logs_max()
        self.held = Held()
        self.given_up_bytes = 0
        self.cleaning = LogCleaning(self._descriptors, clean or in_a_thread(disk), now_ms=now_ms)

    # -- moving ---------------------------------------------------------------------------------

    async def move(
        self, *, bytes_per_second_max: float = 0.0, on_moved: Callable[[PartitionLog], None] = lambda _: None
    ) -> list[str]:
        """Carry out all moves; return one sentence for each, also for failed moves. `on_moved`
        is called with the new log as soon as it replaces the original.
        """
        sentences = []
        while self.moves:
            move = next(iter(self.moves.values()))
            try:
                copied = await self._mover.copy(move)
                if not copied and await self._mover.is_nearly_done(move) and self._mover.copy_rest(move):
                    moved = self._exchange(move)
                    on_moved(moved)
                    await self._save_compacted_to(move.target)
                    sentences.append(f"{move.key.topic}-{move.key.partition} is moved to {move.target.path}")
            except (BatchRejected, StorageError) as error:
                # rejected: a batch on the disk is damaged, and stays so
                sentences.append(self._give_up(move, error))
                continue
            if move.key in self.moves:
                # continue with the other logs
                self.moves[move.key] = self.moves.pop(move.key)
            await asyncio.sleep(copied / bytes_per_second_max if bytes_per_second_max > 0 else 0)
        return sentences

    async def _save_compacted_to(self, directory: LogDirectory) -> None:
        """After a crash a moved log is not compacted from its start again."""
        try:
            await directory.checkpoint(checkpoints.CLEANER_OFFSETS)
        except StorageError as error:
            # the log is moved all the same
            self.note_failure(error)

    def _give_up(self, move: Move, error: BatchRejected | StorageError) -> str:
        if isinstance(error, StorageError):
            self.note_failure(error)
        if self.moves.get(move.key) is move:
            self._drop_move(move.key, remove=move.target in self.directories)
        return f"the move of {move.key.topic}-{move.key.partition} to {move.target.path} is given up: {error}"

    def _exchange(self, move: Move) -> PartitionLog:
        """Replace the original by the complete copy; both have the same batches now."""
        source, future, key = move.source, move.future, move.key
        assert future is not None
        del self.moves[key]
        self._delete_now(source)
        moved = move.target.take_future(
            key,
            future.directory,
            source.config,
            log_start_offset=source.log_start_offset,
            now_ms=self._now_ms(),
            roll_jitter=self._roll_jitter(),
        )
        self._mover.forget_mark(moved)
        # producers too: files keep one batch of each, and clients may repeat up to five
        moved.adopt_state(source)
        moved.source = source.source
        self._logs[key] = moved
        self._homes[key] = move.target
        return moved

    # -- regular work ------------------------------------------------------------------------------

    async def maintain(
        self,
        producer_expiration_ms: int,
        *,
        is_copy: IsCopy = never_a_copy,
        hold_of: HoldOf = no_hold,
        on_expired: Callable[[PartitionLog], None] = lambda _: None,
    ) -> list[str]:
        """One pass of retention, rolling by time and producer expiry; return one sentence for each
        deletion.

        A copy of another site's topic keeps what the source keeps: only its log start applies,
        which follows the source's. `hold_of` returns what to keep of a log beyond its limits;
        `on_expired` is called for each log that lost segments. Yields to the event loop between
        logs. Raises the first StorageError, after all other logs were processed.
        """
        deletions: list[str] = []
        held: list[HeldSegments] = []
        failure: StorageError | None = None
        for log in self:
            try:
                hold = hold_of(log.topic, log.partition)
                # deleted or moved during this pass: its directory may be that of a new log by now
                if log.is_abandoned:
                    continue
                reason = self._maintain_log(log, producer_expiration_ms, is_copy=is_copy(log.topic), hold=hold)
                if log.removals.has_names_to_change:
                    await in_thread(log.removals.put_aside)
            except StorageError as error:
                self.note_failure(error)
                failure = failure or error
                continue
            if log.held is not NOTHING_HELD:
                held.append(log.held)
            if reason:
                deletions.append(f"old segments of {log.topic}-{log.partition} are deleted: {reason}")
                on_expired(log)
            await asyncio.sleep(0)
        self.held = Held.of(held)
        self.given_up_bytes += sum(one.given_up_bytes for one in held)
        if failure is not None:
            raise failure
        return deletions

    def _maintain_log(
        self, log: PartitionLog, producer_expiration_ms: int, *, is_copy: bool, hold: RetentionHold | None
    ) -> str:
        now_ms = self._now_ms()
        log.producers.expire(now_ms, producer_expiration_ms)
        log.roll_if_due(now_ms)
        return log.expire_segments(now_ms, is_copy=is_copy, hold=hold)

    async def remove_due(self) -> None:
        """Remove from disk what was deleted file.delete.delay.ms ago: directories of logs, and
        segments. Raises the first StorageError.
        """
        try:
            await self._deletions.remove_due()
        except StorageError as error:
            self.note_failure(error)
            raise

    async def compact(self, *, is_copy: IsCopy = never_a_copy) -> list[str]:
        """Compact the logs that need it; return one sentence for each.

        Copies of another site's topics stay unchanged, byte for byte.
        """
        sentences = await self.cleaning.run(
            self, may_clean=lambda log: log.config.is_compacted and not is_copy(log.topic)
        )
        if sentences:
            await self._checkpoint(checkpoints.CLEANER_OFFSETS)
        return sentences

    async def flush_due(self) -> None:
        """Flush logs whose flush.ms is over, logs with rolled segments, and logs beyond the limit
        of open descriptors; recovery points follow.
        """
        failure: BaseException | None = None
        due: list[PartitionLog] = []
        rolled: list[PartitionLog] = []
        waiting: list[tuple[int, PartitionLog]] = []
        for number, log in enumerate(self):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            if log.is_at_rest:
                continue
            if log.failure is not None:
                # the code that met the failure may not have reported it
                self.note_failure(log.failure)
                continue
            if log.is_flush_due(self._now_ms()):
                due.append(log)
                continue
            if log.has_unflushed_segments:
                rolled.append(log)
            if (since_ms := log.unflushed_since_ms) is not None:
                waiting.append((since_ms, log))
        surplus = max(len(waiting) - self.unflushed_max, 0)
        if surplus:
            # each keeps a descriptor open: the oldest are flushed so that they can be closed
            due += [log for _, log in sorted(waiting, key=lambda entry: entry[0])[:surplus]]
        await self._each_directory(_sync)
        flushes = [(log, False) for log in due] + [(log, True) for log in rolled]
        for first in range(0, len(flushes), FLUSHES_AT_A_TIME):
            failure = await self._flush(flushes[first : first + FLUSHES_AT_A_TIME]) or failure
        if failure is not None:
            raise failure

    async def _flush(self, flushes: Sequence[tuple[PartitionLog, bool]]) -> BaseException | None:
        """Flush these logs, or their rolled segments, in parallel; return the first failure."""
        failure: BaseException | None = None
        flushing = (log.flush(is_rolled_enough=is_rolled_enough) for log, is_rolled_enough in flushes)
        results = await asyncio.gather(*flushing, return_exceptions=True)
        for (log, _), result in zip(flushes, results, strict=True):
            # a log that was deleted meanwhile has no files to flush
            if isinstance(result, BaseException) and not log.is_abandoned:
                failure = failure or result
                if isinstance(result, StorageError):
                    self.note_failure(result)
        return failure

    async def checkpoint(self) -> None:
        """Write recovery points, high watermarks, log starts and how far logs are compacted, of all
        directories.
        """
        await self._save_thinned()
        await self._checkpoint()

    async def _save_thinned(self) -> None:
        """Each log is a durable write. After the copy of many compacted logs later checkpoints do
        the others: their recovery points wait, so that recovery finds again what they lack.
        """
        saved = 0
        for number, log in enumerate(self):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            if log.is_thinning_unsaved and log.failure is None and saved < THINNED_PER_CHECKPOINT:
                saved += 1
                try:
                    await in_thread(log.save_thinned)
                except StorageError as error:
                    self.note_failure(error)
                    continue
            if log.unsaved_holes_from >= 0:
                log.note_holes_saved()

    async def checkpoint_high_watermarks(self) -> None:
        """Write how far each log is replicated."""
        await self._checkpoint(checkpoints.HIGH_WATERMARKS)

    async def checkpoint_log_start_offsets(self) -> None:
        """Write where logs begin, so that a crash does not restore records that were deleted on
        request.
        """
        await self._checkpoint(checkpoints.LOG_START_OFFSETS)

    async def _checkpoint(self, *names: str) -> None:
        await self._each_directory(lambda directory: directory.checkpoint(*names))

    async def _each_directory(self, act: Callable[[LogDirectory], Awaitable[None]]) -> None:
        """Do it for all directories; one whose disk fails goes offline. Raises the first
        StorageError afterwards.
        """
        failure: StorageError | None = None
        for directory in tuple(self.directories):
            try:
                await act(directory)
            except StorageError as error:
                self.note_failure(error)
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self, *, broker_epoch: int = -1) -> None:
        """Stop cleanly: the next start needs no recovery. Raises the first StorageError, after all
        directories were closed.
        """
        failure: StorageError | None = None
        for key in tuple(self.moves):
            self._drop_move(key)
        for directory in self.directories:
            try:
                self._deletions.put_all_aside_now(directory)
                directory.close(broker_epoch=broker_epoch)
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Release everything without writing."""
        for directory in self.directories:
            directory.abandon()


async def _sync(directory: LogDirectory) -> None:
    if directory.needs_sync:
        await in_thread(directory.sync)
