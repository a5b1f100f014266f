"""Clones of a standby's logs: one directory of clones in each of its log directories, because hard
links need the same file system. Nothing of the standby is written to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.log.directories import checkpoints
from broker.log.directories.log_cloning import ClonedLog, SharedSegment, clone_log, cloning_bytes, write_checkpoints
from broker.log.errors import StorageError
from cli.recovery.rehearsing.standby import LogPlaces, StandbyTopic
from dr.rehearsal.sandbox import Cloned
from dr.sites.core.positions import PartitionPosition
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition
from wire.protocol.ids import TopicPartition as LogKey

SANDBOX = ".antipode-rehearsal"
"""A broker takes no directory of this name for a partition's."""
DATA = "data"
FREE_SHARE_KEPT = 0.1
"""The share of the standby's disk that must stay free; a rehearsal that would leave less is
refused.
"""


def sandbox_directory(log_directory: str) -> Path:
    """The folder in a log directory for everything that a rehearsal creates there."""
    return Path(log_directory) / SANDBOX


def data_directory(log_directory: str) -> Path:
    """The log directory of the sandbox's broker in it."""
    return sandbox_directory(log_directory) / DATA


@dataclass(slots=True)
class CloneWork:
    """The clones of one rehearsal, and the files that they share."""

    log_directories: Sequence[str]
    shared: list[SharedSegment] = field(default_factory=list)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    absent: list[TopicPartition] = field(default_factory=list)
    internal: list[TopicPartition] = field(default_factory=list)
    copied_bytes: int = 0
    _checkpoints: dict[Path, dict[str, dict[LogKey, int]]] = field(default_factory=dict)

    def clone(
        self,
        topics: Mapping[str, StandbyTopic],
        places: LogPlaces,
        positions: Mapping[TopicPartition, PartitionPosition],
        internal_topics: Sequence[str],
    ) -> Cloned:
        """Internal topics first: offsets that groups have committed then are below the carried
        logs' ends, or at them. OperationalFailure.
        """
        for topic in internal_topics:
            for partition, leader in sorted(topics[topic].leaders.items() if topic in topics else ()):
                key = TopicPartition(topic, partition)
                if (path := places.path_of(key, leader=leader)) is not None:
                    self._take(key, path, None)
                    self.internal.append(key)
        for key, position in sorted(positions.items()):
            leader = topics[key.topic].leaders.get(key.partition, -1) if key.topic in topics else -1
            place = places.path_of(key, leader=leader)
            if place is None:
                self.absent.append(key)
                continue
            self._take(key, place, position)
            self.ends[key] = position.safe_end_offset
        for path in self.log_directories:
            data_directory(path).mkdir(parents=True, exist_ok=True)
        for directory, values in self._checkpoints.items():
            write_checkpoints(str(directory), values)
        shared_bytes = sum(one.size_bytes for one in self.shared)
        return Cloned(
            ends=dict(self.ends), absent=tuple(self.absent), shared_bytes=shared_bytes, copied_bytes=self.copied_bytes
        )

    def _take(self, key: TopicPartition, path: str, position: PartitionPosition | None) -> None:
        directory = data_directory(os.path.dirname(path))
        directory.mkdir(parents=True, exist_ok=True)
        end = None if position is None else position.safe_end_offset
        try:
            self._refuse_full_disk(path, end)
            clone = clone_log(path, str(directory / os.path.basename(path)), end_offset=end)
        except StorageError as error:
            raise OperationalFailure(f"{key} cannot be cloned: {error}") from error
        self.shared += clone.shared
        self.copied_bytes += clone.copied_bytes
        self._note(directory, LogKey(*key), clone, position)

    def _refuse_full_disk(self, path: str, end: int | None) -> None:
        _, copied = cloning_bytes(path, end_offset=end)
        disk = shutil.disk_usage(path)
        if disk.free - copied < FREE_SHARE_KEPT * disk.total:
            raise OperationalFailure(
                f"the disk of {path} has {disk.free} bytes free; a clone of it needs up to {copied}, and a tenth of the disk "
                "must stay free for the standby"
            )

    def _note(self, directory: Path, key: LogKey, clone: ClonedLog, position: PartitionPosition | None) -> None:
        values = self._checkpoints.setdefault(directory, {})

        def note(name: str, offset: int) -> None:
            values.setdefault(name, {})[key] = offset

        note(checkpoints.RECOVERY_POINTS, clone.recovery_offset)
        if position is None:
            return
        note(checkpoints.HIGH_WATERMARKS, position.safe_end_offset)
        note(checkpoints.LOG_START_OFFSETS, position.log_start_offset)
        if position.source_high_watermark >= 0:
            note(checkpoints.SOURCE_HIGH_WATERMARKS, position.source_high_watermark)
            note(checkpoints.SOURCE_SEEN_AT, max(position.source_seen_at_ms, 0))
            note(checkpoints.SOURCE_LOG_EPOCHS, position.last_log_epoch)

    def changes(self) -> list[str]:
        """Shared files that were written to since."""
        return [change for one in self.shared if (change := one.change())]


def remove_clones(log_directories: Sequence[str]) -> bool:
    """Remove the clones; True if there were any. Raises OperationalFailure when this fails."""
    found = [path for one in log_directories if (path := sandbox_directory(one)).exists()]
    try:
        for path in found:
            shutil.rmtree(path)
    except OSError as error:
        raise OperationalFailure(f"{error.filename} cannot be removed: {error.strerror}") from error
    return bool(found)
