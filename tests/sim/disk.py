"""Logs in memory, and the part of them that a crash leaves: everything after the death of a
process, the flushed part after a loss of power.

`MemoryLog` is the real `PartitionLog` over a list of batches instead of segments: checks,
producers, leader epochs and offsets are the real ones. `Disk` outlives the processes that write to
it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

from broker.log.core.batch_checks import BatchLimits
from broker.log.core.leader_epochs import EpochStart, LeaderEpochs
from broker.log.core.producer_state import ProducerStates
from broker.log.directories.folder import Folder
from broker.log.directories.log_store import LogStore
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.intake import AppendInfo, Intake
from broker.log.partition_log import PartitionLog
from broker.log.range_digests import RangeDigests
from broker.log.recovery import RecoveryReport
from broker.log.segments.log_slice import LogSlice
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.source_seen import SourceSeen
from broker.metadata.core.topic_images import TopicImage
from broker.settings.core.topic_configs import LogConfig
from tests.sim.memory_files import MemoryFiles
from tests.sim.stored_logs import Batch, MemorySlice, StoredLog
from wire.batches.record_batch import iterate_headers
from wire.protocol.ids import TopicPartition


class _Durability:
    """The part of `broker/log/durability.py` that an append and a cut touch."""

    failure = None

    def __init__(self, stored: StoredLog) -> None:
        self._stored = stored

    @property
    def recovery_point(self) -> int:
        return self._stored.flushed

    def note_log_start(self, offset: int) -> None:
        self._stored.flushed = max(self._stored.flushed, offset)

    def refuse_when_failed(self) -> None:
        pass


class LogObserver(Protocol):
    """Gets the events of a log (`checkers.py`)."""

    def high_watermark_moved(self, log: MemoryLog, former: int) -> None:
        """The high watermark has advanced from `former`."""
        ...

    def leader_appends(self, log: MemoryLog, leader_epoch: int) -> None:
        """The leader has appended under this epoch."""
        ...

    def truncated(self, log: MemoryLog) -> None:
        """Records at its end are gone."""
        ...


class MemoryLog(PartitionLog):
    """One log of a simulated broker."""

    def __init__(self, stored: StoredLog, config: LogConfig, observer: LogObserver) -> None:
        self.stored = stored
        self.source = SourceSeen()
        self.directory = "memory/log"
        self.topic, self.partition, self.topic_id = stored.topic, stored.partition, stored.topic_id
        self.config = config
        self._limits = BatchLimits.of(config)
        self._epochs = LeaderEpochs(stored.epochs)
        self._producers = ProducerStates()
        self._aborted: list[AbortedTransaction] = []
        self._durability = _Durability(stored)  # type: ignore[assignment]
        self._observer = observer
        self.log_start_offset, self.log_end_offset = stored.start, stored.end
        self._high_watermark = min(max(stored.high_watermark, stored.start), stored.end)
        self.is_abandoned = False
        self.compacted_to = stored.start
        self.digests = RangeDigests(
            self.directory,
            MemoryFiles(),
            Folder(),
            trusted_end=stored.start,
            is_new=True,
            is_clean=True,
            note_names=lambda _: None,
        )
        self._replay_producers()

    def _replay_producers(self) -> None:
        self._producers.restore([])
        self._aborted.clear()
        for batch in self.stored.batches:
            for _, header in iterate_headers(batch.content):
                if header.producer_id >= 0:
                    self._replay(batch.content, 0, header)
        self._producers.advance_high_watermark(self._high_watermark)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.content) for batch in self.stored.batches)

    @property
    def max_timestamp_ms(self) -> int:
        return -1

    def advance_high_watermark(self, offset: int) -> None:
        former = self._high_watermark
        super().advance_high_watermark(offset)
        if self._high_watermark != former:
            self._observer.high_watermark_moved(self, former)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._limits = BatchLimits.of(config)

    def assign_topic_id(self, topic_id: bytes, *, is_new: bool = False) -> None:
        self.topic_id = self.stored.topic_id = topic_id

    def append_as_leader(self, records: Any, *, leader_epoch: int, **options: Any) -> AppendInfo:
        self._observer.leader_appends(self, leader_epoch)
        return super().append_as_leader(records, leader_epoch=leader_epoch, **options)

    def _write(self, intake: Intake, size_bytes: int, now_ms: int) -> None:
        content = b"".join(bytes(piece) for piece in intake.pieces)
        for position, header in iterate_headers(content):
            self.stored.batches.append(
                Batch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    content[position : position + header.size_bytes],
                )
            )
        self.log_end_offset = intake.next_offset

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int | None = None, has_minimum_one_batch: bool = True
    ) -> LogSlice:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        end = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        batches = self.stored.batches
        first = max(bisect_right(batches, offset, key=lambda batch: batch.base_offset) - 1, 0)
        found = batches[first : first + BATCHES_READ_MAX]
        return MemorySlice([batch for batch in found if offset <= batch.last_offset < end], offset)

    def bytes_between(self, offset: int, end_offset: int) -> int:
        return max(end_offset - offset, 0)

    def offset_for_timestamp(self, timestamp_ms: int) -> None:
        return None

    def aborted_transactions(self, from_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return [
            entry for entry in self._aborted if entry.last_offset >= from_offset and entry.first_offset < end_offset
        ]

    def _index_aborted(self, aborted: AbortedTransaction) -> None:
        self._aborted.append(aborted)

    @asynccontextmanager
    async def truncation(self, offset: int) -> AsyncIterator[None]:
        """Yields to other tasks before and after it, as a real disk does."""
        await asyncio.sleep(0)
        yield
        await asyncio.sleep(0)

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(offset)
            return
        stored = self.stored
        stored.batches = [batch for batch in stored.batches if batch.last_offset < offset]
        self.log_end_offset = stored.end
        self._epochs.truncate_from_end(self.log_end_offset)
        stored.flushed = min(stored.flushed, self.log_end_offset)
        self.digests.drop_from(self.log_end_offset)
        self._cut_high_watermark()
        self._replay_producers()
        self._observer.truncated(self)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.stored.batches.clear()
        self.stored.start = self.stored.flushed = offset
        self.log_start_offset = self.log_end_offset = offset
        self._epochs.clear()
        self.digests.drop_from(offset)
        self._cut_high_watermark()
        self._replay_producers()

    def _cut_high_watermark(self) -> None:
        self._high_watermark = min(max(self._high_watermark, self.log_start_offset), self.log_end_offset)

    async def flush(self, *, is_rolled_enough: bool = False) -> None:
        if not is_rolled_enough:  # nothing is rolled here
            self.stored.flushed = self.log_end_offset


class MemoryLogStore(LogStore):
    """A broker's `LogStore` over its disk: the methods for segments and log directories have
    nothing to do.
    """

    def __init__(self, disk: Disk, observer: LogObserver, *, now_ms: Callable[[], int]) -> None:
        super().__init__([], disk.files, now_ms=now_ms)
        self._kept = disk
        self._observer = observer
        self.directories = [SimpleNamespace(path=DIRECTORY, is_clean=True, notes=(), stray_count=0)]  # type: ignore[list-item]

    def open(self, *, node_id: int, cluster_id: str) -> None:
        """The disk belongs to one node."""

    def load(self, config_of: Callable[[str], LogConfig]) -> list[RecoveryReport]:
        """Open all that the disk has."""
        for key, stored in self._kept.logs.items():
            self._logs[key] = MemoryLog(stored, stored.config or config_of(key.topic), self._observer)
        return []

    def note_failure(self, error: StorageError) -> None:
        """Disks do not fail here."""
        raise error

    def remove_file(self, path: str) -> None:
        """No file of truncated records is kept here."""

    def open_or_create(
        self, topic: str, partition: int, *, topic_id: bytes, config: LogConfig, is_new: bool = True
    ) -> PartitionLog:
        key = TopicPartition(topic, partition)
        log = self._logs.get(key)
        if log is not None and log.topic_id not in (None, topic_id):
            self.delete(log)
            log = None
        if log is None:
            stored = self._kept.logs[key] = StoredLog(topic, partition, topic_id)
            log = self._logs[key] = MemoryLog(stored, config, self._observer)
        self._kept.logs[key].config = config
        log.update_config(config)
        return log

    async def make_way(self, topics: Iterable[TopicImage], *, node_id: int) -> None:
        """A deleted log leaves nothing here."""

    def delete(self, log: PartitionLog) -> None:
        key = TopicPartition(log.topic, log.partition)
        del self._logs[key], self._kept.logs[key]

    def set_aside(self, log: PartitionLog) -> None:
        """No person puts a log back here, so it is gone as a deleted one."""
        self.delete(log)

    def registration_of(self, log: PartitionLog) -> int | None:
        return self._kept.registration

    async def note_registration(self, zxid: int) -> None:
        self._kept.registration = max(zxid, self._kept.registration or 0)

    async def maintain(self, *_: Any, **__: Any) -> list[str]:
        """Nothing expires here."""
        return []

    async def flush_due(self) -> None:
        """Only what the topic's configuration demands is flushed here."""

    async def checkpoint(self) -> None:
        """Recovery points and log starts are stored with the logs here."""

    async def checkpoint_high_watermarks(self) -> None:
        self._save()

    async def checkpoint_log_start_offsets(self) -> None:
        """They are stored with the logs here."""

    def _save(self) -> None:
        for stored, log in ((self._kept.logs[key], log) for key, log in self._logs.items()):
            stored.high_watermark = log.high_watermark

    def close(self, *, broker_epoch: int = -1) -> None:
        """A clean stop: everything is flushed."""
        for key, log in self._logs.items():
            self._kept.logs[key].flushed = log.log_end_offset
        self._save()

    def abandon(self) -> None:
        """The logs stay as they are."""


class Disk:
    """The logs of one node, independent of the process that writes them."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, StoredLog] = {}
        self.files = MemoryFiles()
        self.registration: int | None = None

    def recover(self, chance: Random, *, has_lost_power: bool) -> None:
        """The state for a new process. Its objects are new, because a killed process may still hold
        the old ones.
        """
        for key, stored in tuple(self.logs.items()):
            kept = list(stored.batches)
            if has_lost_power:
                unflushed = [batch for batch in kept if batch.last_offset >= stored.flushed]
                survivors = chance.randint(0, len(unflushed))
                kept = kept[: len(kept) - len(unflushed) + survivors]
            found = StoredLog(
                stored.topic, stored.partition, stored.topic_id, kept, [], stored.start, config=stored.config
            )
            found.flushed = min(stored.flushed, found.end)
            found.high_watermark = min(stored.high_watermark, found.end)
            found.epochs = _recovered_epochs(kept)
            self.logs[key] = found


def _recovered_epochs(batches: list[Batch]) -> list[EpochStart]:
    """The epochs with records: an epoch that had only begun is not recovered."""
    epochs = LeaderEpochs()
    for batch in batches:
        epochs.assign(batch.epoch, batch.base_offset)
    return epochs.entries


DIRECTORY = "memory"
BATCHES_READ_MAX = 8
"""Batches in one answer: few, so that followers and leaders often part in the middle."""
