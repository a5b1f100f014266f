"""Truncated records: counted by partition, and copied into a file before the truncation.

A leader that lost its followers accepts acks=1 until it learns of its successor. The records that
it accepted then, and their copies at followers, are truncated when it becomes a follower. Before
that it copies the batches unchanged to `0.cut.<topic>-<partition>.log` beside the partitions'
folders. Brokers do not look for logs there, and Kafka's dump tool can read the file; a topic name
that is too long is shortened (`truncated_names.py`). Copies are bounded for each partition;
records that do not fit, or cannot be written, are counted as not kept. A copy is on disk before the
log is truncated. An interrupted truncation copies again: a batch may be in the file twice.

Called on the event loop: by `replica_fetcher.py` before a truncation, by `replicas.py` when a topic
is deleted. Other threads read the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct

from broker.log.dropped.kept_batches import whole_end
from broker.log.dropped.truncated_names import truncated_name
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.log.threads import in_thread
from broker.replication.quarantine import Quarantine
from runtime.disk import Disk, write_all
from runtime.logs import get_logger

log = get_logger(__name__)

PIECE_BYTES: Final = 1 << 20


class TruncationCounts(Struct, frozen=True, kw_only=True):
    """The truncated records of one partition's log here since the start of the broker. Records are
    counted as offsets: control records and compacted gaps count too.
    """

    count: int = 0
    records: int = 0
    bytes: int = 0
    kept_bytes: int = 0
    first_offset: int = -1
    """The first offset that the last truncation removed."""
    at_ms: int = 0
    """The time of the last truncation (Unix ms)."""

    def then(self, later: TruncationCounts) -> TruncationCounts:
        """These records, and records that were truncated later."""
        return TruncationCounts(
            count=self.count + later.count,
            records=self.records + later.records,
            bytes=self.bytes + later.bytes,
            kept_bytes=self.kept_bytes + later.kept_bytes,
            first_offset=later.first_offset,
            at_ms=later.at_ms,
        )


class TruncatedRecords:
    """The truncated records of one broker."""

    def __init__(self, disk: Disk, *, bytes_max: int, remove: Callable[[str], None] | None = None) -> None:
        """Keeps at most `bytes_max` bytes for a partition; 0 keeps nothing. `remove` removes a file
        from the disk, now or soon.
        """
        self._remove = remove or partial(_remove_now, disk)
        self._disk = disk
        self._bytes_max = bytes_max
        self.quarantine = Quarantine(disk, bytes_max=bytes_max)
        """Keeps records before they are removed on purpose, in the same kind of files below the
        same bound.
        """
        self._by_partition: dict[tuple[str, int], TruncationCounts] = {}
        self.total = TruncationCounts()
        """The counts of all partitions together, also of topics that were deleted since."""

    def of(self, topic: str, partition: int) -> TruncationCounts | None:
        """The counts of this partition; None if it lost nothing."""
        return self._by_partition.get((topic, partition))

    def by_partition(self) -> dict[tuple[str, int], TruncationCounts]:
        """The counts of each partition that lost records."""
        return dict(self._by_partition)

    async def keep(self, cut: PartitionLog, offset: int) -> int:
        """Copy what the log holds from `offset` on, as far as there is room, and return when it is
        on disk: how many bytes. Raises no error: the truncation must continue.
        """
        if not self._bytes_max or offset >= cut.log_end_offset:
            return 0
        try:
            # the log's start may lie above: nothing below it can be read
            return await self._copy(cut, max(offset, cut.log_start_offset), path_of(cut))
        except (OSError, StorageError) as error:
            log.warning(
                "truncated records could not be kept", topic=cut.topic, partition=cut.partition, reason=str(error)
            )
            return 0

    async def _copy(self, cut: PartitionLog, offset: int, path: str) -> int:
        begin = position = await in_thread(partial(whole_end, self._disk, path))
        descriptor = self._disk.open(path, os.O_RDWR | os.O_CREAT)
        try:
            # the bound counts what is in the file from earlier truncations too
            while offset < cut.log_end_offset and position < self._bytes_max:
                with cut.read(offset, max_bytes=min(PIECE_BYTES, self._bytes_max - position)) as piece:
                    content, offset = piece.read_bytes(), piece.next_offset
                # a single batch may be larger than what is left of the bound
                if not content or position + len(content) > self._bytes_max:
                    break
                position += write_all(self._disk, descriptor, [content], position)
                await asyncio.sleep(0)
            if position > begin:
                await in_thread(partial(self._disk.fdatasync, descriptor))
                await in_thread(partial(self._disk.fsync_directory, os.path.dirname(path)))
        finally:
            self._disk.close(descriptor)
        return position - begin

    def record(self, cut: PartitionLog, made: TruncationCounts) -> None:
        """The log has been truncated."""
        key = (cut.topic, cut.partition)
        self._by_partition[key] = self._by_partition.get(key, TruncationCounts()).then(made)
        self.total = self.total.then(made)

    def forget(self, deleted: PartitionLog, *, is_copy: bool) -> None:
        """The topic is deleted: remove its records, unless the topic was a copy of another site's.
        Records of a copy may exist nowhere else.
        """
        self._by_partition.pop((deleted.topic, deleted.partition), None)
        if not is_copy:
            self._remove(path_of(deleted))


def _remove_now(disk: Disk, path: str) -> None:
    with contextlib.suppress(OSError):
        disk.unlink(path)


def path_of(cut: PartitionLog) -> str:
    """The file beside the log's folder for the records that are truncated from it."""
    return f"{os.path.dirname(cut.directory)}/{truncated_name(cut.topic, cut.partition)}"
