"""Finds by content how far a target is a copy of a source, if no stored position is left.

A batch that passed a translate link keeps its compressed records byte for byte: count, times and a
CRC-32C over the records alone make a fingerprint. Both logs are read once from their beginnings.
The target's batches that are copies lie in the source's order; the walk ends with the first batch
of the source that follows a copy and has none itself. Batches from before the first copy have
expired at the target.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from crc32c import crc32c

from mirror.translate.core.resume import HistoryMismatch
from mirror.translate.core.translation import Translation
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, Buffer


class Fingerprint(NamedTuple):
    """The parts of a batch that stay the same when it is mirrored."""

    record_count: int
    base_timestamp: int
    records_crc: int


class _Copy(NamedTuple):
    number: int
    header: BatchHeader


def fingerprint(buffer: Buffer, position: int, header: BatchHeader) -> Fingerprint:
    """The fingerprint of the batch at `position`."""
    with memoryview(buffer) as view, view[position + HEADER_SIZE : position + header.size_bytes] as records:
        return Fingerprint(header.record_count, header.base_timestamp, crc32c(records))


class Likeness:
    """The comparison of one partition: call `see_target` for the target's whole log, then
    `see_source` from the source's log start until `is_complete`.
    """

    def __init__(self) -> None:
        self._copies: defaultdict[Fingerprint, deque[_Copy]] = defaultdict(deque)
        self._targets = 0
        self._next_number = 0
        self._pairs: list[tuple[BatchHeader, BatchHeader]] = []
        self._source_next = 0
        self._source_epoch = -1
        self._has_ended = False

    @property
    def matched_batches(self) -> int:
        """Batches of the source that the target has."""
        return len(self._pairs)

    @property
    def is_complete(self) -> bool:
        """True if the end of the copy has been found."""
        return self._has_ended

    def see_target(self, found: Fingerprint, header: BatchHeader) -> None:
        """The target's next batch."""
        self._copies[found].append(_Copy(self._targets, header))
        self._targets += 1

    def see_source(self, wanted: Fingerprint | None, header: BatchHeader) -> None:
        """The source's next batch; None for one that is skipped."""
        if self._has_ended:
            return
        if wanted is not None:
            copies = self._copies.get(wanted, deque())
            while copies and copies[0].number < self._next_number:
                copies.popleft()
            if copies:
                copy = copies.popleft()
                self._next_number = copy.number + 1
                self._pairs.append((header, copy.header))
            elif self._pairs:
                self._has_ended = True
                return
            else:
                return
        if self._pairs:
            self._source_next, self._source_epoch = header.next_offset, header.partition_leader_epoch

    def finish(self, translation: Translation, *, target_end: int) -> None:
        """Apply the found pairs. HistoryMismatch when a pair cannot be one."""
        for source, target in self._pairs:
            if source.record_count != source.last_offset_delta + 1:
                raise HistoryMismatch(f"the source's batch at {source.base_offset} was compacted")
            translation.map.append(source.base_offset, target.base_offset, source.record_count)
        translation.position.source_next = self._source_next
        translation.position.source_epoch = self._source_epoch
        translation.position.target_next = target_end
        translation.is_dirty = True
        translation.rest()
