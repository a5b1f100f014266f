"""Moving a log to another log directory of the same broker while it is written and read.

A future log in the target directory copies the batches as they are, a chunk at a time, until it has
caught up. Then, without yielding to the event loop, it copies the last batches, is closed, is
marked as complete and replaces the original, whose files are deleted later. Until that moment the
original is the log: after a crash before the mark, the original is used and the copy dropped; after
a crash later, the next start finishes the replacement (`finish_moves`).

Caller: broker/log/directories/log_store.py, which owns both directories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from broker.log.directories.checkpoints import LOG_START_OFFSETS
from broker.log.directories.log_directory import LogDirectory
from broker.log.errors import storage_errors
from broker.log.partition_log import PartitionLog
from runtime.disk import Disk, read_file, write_file
from wire.batches.record_batch import read_header
from wire.protocol.ids import TopicPartition

CHUNK_BYTES: Final = 1024 * 1024
COMPLETE_MARK: Final = "move-complete"
"""A file in a future directory: the copy is complete, and the original may be deleted. Its content
is the log start offset.
"""


class Move(Struct, eq=False):
    """One log on its way. `future` is created with the first chunk."""

    source: PartitionLog
    target: LogDirectory
    future: PartitionLog | None = None
    truncations: int = 0
    is_cancelled: bool = False

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.source.topic, self.source.partition)

    @property
    def lag(self) -> int:
        """The number of offsets that the copy lacks."""
        if self.future is None:
            return self.source.log_end_offset - self.source.log_start_offset
        return self.source.log_end_offset - self.future.log_end_offset


class Mover:
    """Continues moves, one chunk in each call."""

    def __init__(self, disk: Disk, *, now_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._now_ms = now_ms

    async def copy(self, move: Move) -> int:
        """Copy the next chunk; return its size in bytes. 0: the copy has everything that the
        original has now.
        """
        future = self._future_of(move)
        source = move.source
        if move.truncations != source.truncation_count:
            # copied batches may be above the truncation and have been written again since
            move.truncations = source.truncation_count
            future.truncate_fully_and_start_at(_first_offset(source))
        offset = max(future.log_end_offset, source.log_start_offset)
        with source.read(offset, max_bytes=CHUNK_BYTES) as piece:
            # read in a thread; appended on the loop, which owns the future log
            content = await asyncio.to_thread(piece.read_bytes)
        # a deletion or a compaction in between does not change the bytes; the next chunk notices a
        # truncation
        if content and move.truncations == source.truncation_count and not move.is_cancelled:
            future.append_replicated(content)
        return len(content)

    def _future_of(self, move: Move) -> PartitionLog:
        if move.future is None:
            source = move.source
            move.future = move.target.create_future(
                move.key, source.config, topic_id=source.topic_id, now_ms=self._now_ms()
            )
            move.truncations = source.truncation_count
            move.future.truncate_fully_and_start_at(_first_offset(source))
        return move.future

    async def is_nearly_done(self, move: Move) -> bool:
        """Flush the copied part to disk, so that the rest blocks the loop only briefly; return True
        if only a little was appended since.
        """
        future, source = move.future, move.source
        if future is None or move.is_cancelled:
            return False
        # before the loop is blocked: the last flush then has at most one chunk
        await future.flush()
        left_bytes = source.bytes_between(max(future.log_end_offset, source.log_start_offset), source.log_end_offset)
        return left_bytes <= CHUNK_BYTES and not move.is_cancelled

    def copy_rest(self, move: Move) -> bool:
        """Copy the rest, blocking the loop, and mark the copy complete; False after a truncation in
        between.
        """
        future, source = move.future, move.source
        assert future is not None
        if move.truncations != source.truncation_count:
            return False
        while future.log_end_offset < source.log_end_offset:
            with source.read(max(future.log_end_offset, source.log_start_offset), max_bytes=CHUNK_BYTES) as piece:
                content = piece.read_bytes()
            if content:
                future.append_replicated(content)
            else:
                # everything was deleted since the last chunk: the copy ends where the original does
                future.truncate_fully_and_start_at(source.log_end_offset)
        future.adopt_state(source)
        future.save_thinned()
        # closed, and therefore durable, before the mark that makes it the log
        future.close()
        path = f"{future.directory}/{COMPLETE_MARK}"
        with storage_errors("writing", path):
            write_file(self._disk, path, str(source.log_start_offset).encode(), is_durable=True)
        return True

    def forget_mark(self, moved: PartitionLog) -> None:
        """Remove the mark: the copy is the log now."""
        path = f"{moved.directory}/{COMPLETE_MARK}"
        with storage_errors("removing", path):
            self._disk.unlink(path)


def _first_offset(source: PartitionLog) -> int:
    """The start of the copy: the batch that contains the log's start, which may begin below it."""
    with source.read(source.log_start_offset, max_bytes=1) as piece:
        content = piece.read_bytes()
    return min(read_header(content).base_offset, source.log_start_offset) if content else source.log_end_offset


def finish_moves(directories: list[LogDirectory], disk: Disk, *, may_forget: bool) -> list[str]:
    """Finish moves that a stop interrupted, before logs are loaded; return one sentence for each.

    A complete copy without an original replaces it. Any other copy is deleted, unless
    (`may_forget`) the original may be in an offline directory.
    """
    present = {key for directory in directories for key in directory.partitions()}
    sentences = []
    for directory in directories:
        for key, path in directory.future_directories().items():
            name = f"{key.topic}-{key.partition}"
            log_start_offset = _complete_from(disk, path)
            if key not in present and log_start_offset is not None:
                target = directory.directory_of(key)
                directory.begin_loading()
                if log_start_offset:
                    directory.checkpoint_now(LOG_START_OFFSETS, starts={key: log_start_offset})
                with storage_errors("renaming", path):
                    # the mark is removed last: without it, the only copy would count as an
                    # interrupted one
                    disk.rename(path, target)
                    disk.fsync_directory(directory.path)
                    disk.unlink(f"{target}/{COMPLETE_MARK}")
                sentences.append(f"the move of {name} to {directory.path} is finished")
            elif key in present or may_forget:
                directory.remove_directory(path)
                sentences.append(f"the move of {name} to {directory.path} was interrupted and is forgotten")
    return sentences


def _complete_from(disk: Disk, path: str) -> int | None:
    """The log start offset of a complete copy; None if it is not complete."""
    with storage_errors("opening", path):
        if not any(entry.name == COMPLETE_MARK for entry in disk.entries(path)):
            return None
        return int(read_file(disk, f"{path}/{COMPLETE_MARK}"))
