"""Finds by content how far a target is a copy of a source, if no stored position is left.

A batch that passed a translate link keeps its compressed records byte for byte: count, times and a
CRC-32C over the records alone make a fingerprint. A batch that may have been merged with others
(`core/merging.py`) keeps its records: a digest of the first one, and the sum of the digests of all,
which adds up over the batches of a merged one. Both logs are read once from their beginnings. The
target's batches that are copies lie in the source's order; the walk ends with the first batch of
the source that follows a copy and has none itself. Batches from before the first copy have expired
at the target.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from mirror.translate.core.merging import DIGEST_MASK, may_be_merged, record_digests
from mirror.translate.core.resume import HistoryMismatch
from mirror.translate.core.translation import Translation
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, Buffer, InvalidBatch


class Fingerprint(NamedTuple):
    """The parts of a batch that stay the same when it is mirrored."""

    record_count: int
    # Digest of the first record, or of the whole batch where it is never merged.
    beginning: int
    # The sum of the digests of all records; of the whole batch where it is never merged.
    content: int


class _Copy(NamedTuple):
    number: int
    found: Fingerprint
    base_offset: int


_Seen = tuple[Fingerprint | None, BatchHeader]


@dataclass(slots=True)
class _Partial:
    """A batch of the target that may have the records of several batches of the source."""

    copy: _Copy
    batches: list[_Seen]
    record_count: int
    content: int


def fingerprint(buffer: Buffer, position: int, header: BatchHeader) -> Fingerprint:
    """The fingerprint of the batch at `position`."""
    if may_be_merged(header):
        # a batch whose records cannot be read was never merged
        with suppress(InvalidBatch):
            digests = record_digests(buffer, position, header)
            return Fingerprint(header.record_count, digests[0], sum(digests) & DIGEST_MASK)
    with memoryview(buffer) as view, view[position + HEADER_SIZE : position + header.size_bytes] as records:
        whole = hash((header.record_count, header.base_timestamp, crc32c(records)))
    return Fingerprint(header.record_count, whole, whole)


class Likeness:
    """The comparison of one partition: call `see_target` for the target's whole log, then
    `see_source` from the source's log start until `is_complete`.
    """

    def __init__(self) -> None:
        self._copies: defaultdict[int, deque[_Copy]] = defaultdict(deque)
        self._targets = 0
        self._next_number = 0
        # Batches of the source, each with the offset of its copy.
        self._pairs: list[tuple[BatchHeader, int]] = []
        self._partial: _Partial | None = None
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
        self._copies[found.beginning].append(_Copy(self._targets, found, header.base_offset))
        self._targets += 1

    def see_source(self, wanted: Fingerprint | None, header: BatchHeader) -> None:
        """The source's next batch; None for one that is skipped."""
        waiting = deque([(wanted, header)])
        while waiting and not self._has_ended:
            one = waiting.popleft()
            # batches that were taken for parts of a merged copy in vain are looked at again
            waiting.extendleft(
                reversed(self._begin(*one) if self._partial is None else self._go_on(self._partial, one))
            )

    def _begin(self, wanted: Fingerprint | None, header: BatchHeader) -> list[_Seen]:
        if wanted is not None:
            copy = self._copy_of(wanted)
            if copy is None:
                self._has_ended = bool(self._pairs)
                return []
            if copy.found.record_count > wanted.record_count:
                self._partial = _Partial(copy, [(wanted, header)], wanted.record_count, wanted.content)
                return []
            self._pair(copy, [(wanted, header)])
        elif self._pairs:
            self._pass(header)
        return []

    def _go_on(self, partial: _Partial, one: _Seen) -> list[_Seen]:
        """Take the source's next batch for a part of the same copy; returns the batches that are to
        be looked at again.
        """
        partial.batches.append(one)
        if one[0] is None:
            return []
        partial.record_count += one[0].record_count
        partial.content = partial.content + one[0].content & DIGEST_MASK
        if partial.record_count < partial.copy.found.record_count:
            return []
        self._partial = None
        if (partial.record_count, partial.content) == (partial.copy.found.record_count, partial.copy.found.content):
            self._pair(partial.copy, partial.batches)
            return []
        self._has_ended = bool(self._pairs)
        return partial.batches[1:]

    def _copy_of(self, wanted: Fingerprint) -> _Copy | None:
        """The first copy that has the batch alone, else the first one that begins like it."""
        copies = self._copies.get(wanted.beginning, deque())
        while copies and copies[0].number < self._next_number:
            copies.popleft()
        longer: _Copy | None = None
        for copy in copies:
            if copy.found == wanted:
                return copy
            if longer is None and copy.found.record_count > wanted.record_count:
                longer = copy
        return longer

    def _pair(self, copy: _Copy, batches: list[_Seen]) -> None:
        self._next_number = copy.number + 1
        offset = copy.base_offset
        for wanted, header in batches:
            if wanted is not None:
                self._pairs.append((header, offset))
                offset += header.record_count
        self._pass(batches[-1][1])

    def _pass(self, header: BatchHeader) -> None:
        self._source_next, self._source_epoch = header.next_offset, header.partition_leader_epoch

    def finish(self, translation: Translation, *, target_end: int) -> None:
        """Apply the found pairs. HistoryMismatch when a pair cannot be one."""
        for source, target_offset in self._pairs:
            if source.record_count != source.last_offset_delta + 1:
                raise HistoryMismatch(f"the source's batch at {source.base_offset} was compacted")
            translation.map.append(source.base_offset, target_offset, source.record_count)
        translation.position.source_next = self._source_next
        translation.position.source_epoch = self._source_epoch
        translation.position.target_next = target_end
        translation.is_dirty = True
        translation.rest()
