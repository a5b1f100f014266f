"""What recovery drops from a log: counted, and the sound batches of it kept.

Recovery ends a log at the first damaged batch, as Apache Kafka does, because a replica may have no
gap. After a crash of the machine a disk may lack single pages that were not flushed, and later
batches may be whole. They may be acknowledged records, so recovery copies them to the partition's
file of truncated records before it drops them.

Caller: broker/log/loading.py, in a thread.
"""

from __future__ import annotations

import os

from broker.log.dropped.kept_batches import keep_batches
from broker.log.dropped.sound_batches import sound_batches
from broker.log.dropped.truncated_names import truncated_name
from broker.log.errors import StorageError
from broker.log.recovery import DroppedTail, SegmentCheck
from broker.log.segments.segment import Segment
from runtime.disk import Disk


class DroppedBatches:
    """The dropped parts of one log. At most `bytes_max` bytes are kept in the file of the
    partition.
    """

    def __init__(self, disk: Disk, directory: str, topic: str, partition: int, bytes_max: int) -> None:
        self._disk = disk
        self._path = f"{os.path.dirname(directory)}/{truncated_name(topic, partition)}"
        self._bytes_max = bytes_max
        self.tails: list[DroppedTail] = []
        self.notes: list[str] = []

    def add_tail(self, descriptor: int, path: str, size_bytes: int, check: SegmentCheck) -> None:
        """The part of a segment behind its sound batches; it is still in the file."""
        kept = self._keep(descriptor, path, (check.valid_bytes, size_bytes), check.next_offset, check.epoch)
        tail = DroppedTail(path, check.next_offset, size_bytes - check.valid_bytes, check.fault, kept)
        self.tails.append(tail)

    def add_segment(self, segment: Segment, reason: str, from_epoch: int) -> None:
        """A whole segment, whose file still has its name; its batches from this leader epoch on are
        kept.
        """
        descriptor = segment.file.acquire()
        try:
            place = (0, segment.size_bytes)
            kept = self._keep(descriptor, segment.path, place, segment.base_offset, from_epoch)
        finally:
            segment.file.release()
        self.tails.append(DroppedTail(segment.path, segment.base_offset, segment.size_bytes, reason, kept))

    def _keep(self, descriptor: int, path: str, place: tuple[int, int], from_offset: int, from_epoch: int) -> int:
        if not self._bytes_max:
            return 0
        start, end = place
        batches = sound_batches(
            self._disk, descriptor, path, start, end, from_offset=from_offset, from_epoch=from_epoch
        )
        try:
            return keep_batches(self._disk, self._path, batches, self._bytes_max)
        except (OSError, StorageError) as error:
            self.notes.append(f"batches of {path} could not be kept in {self._path}: {error}")
            return 0
