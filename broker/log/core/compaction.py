"""Decides what compaction keeps: the newest record of each key, tombstones for a while, and batches
that producers' state needs. Pure.

The newest offset of each key is collected first (`KeyOffsets`), from the whole range that is
cleaned; then each batch is judged record by record. Records of aborted transactions never count as
newest and are removed. A tombstone is removed when `delete.retention.ms` have passed since the
first cleaning that read it. That time is stored in its batch as the delete horizon (KIP-534), so
that a reader from the start sees the deletion if it is not slower than that.

Caller: broker/log/cleaning/cleaner.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wire.batches.record_batch import BatchHeader
from wire.batches.record_walks import read_keys

KEYS_MAX: Final = 2_000_000
"""Maximum number of keys in one pass; the range is shortened if there are more."""


class AbortedRange(NamedTuple):
    """Offsets from the first record to the marker of an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedRanges:
    """The ranges of aborted transactional records."""

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        self._by_producer: dict[int, list[AbortedRange]] = {}
        for aborted in sorted(ranges, key=lambda aborted: aborted.first_offset):
            self._by_producer.setdefault(aborted.producer_id, []).append(aborted)

    def holds(self, producer_id: int, offset: int) -> bool:
        """True if the transactional record at `offset` belongs to an aborted transaction."""
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        index = bisect_right(ranges, offset, key=lambda aborted: aborted.first_offset) - 1
        return index >= 0 and offset <= ranges[index].last_offset


class KeyOffsets:
    """The newest offset of each key in the cleaned range."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._offsets: dict[bytes | None, int] = {}
        self._newest: list[int] | None = None
        self._keys_max = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """No further key fits."""
        return len(self._offsets) >= self._keys_max

    def note(self, header: BatchHeader, body: bytes, start: int, end: int) -> None:
        """Add the records of a batch, which are `body` from `start` to `end`; batches come in the
        order of the log. Raises InvalidBatch.
        """
        read_keys(
            body,
            start,
            end=end,
            record_count=header.record_count,
            base_offset=header.base_offset,
            offsets=self._offsets,
        )

    def close(self) -> None:
        """Close the range after all its records were added; the queries below are valid only
        then.
        """
        # records without a key would share the key None, and none of them is the newest of a key
        self._offsets.pop(None, None)
        self._newest = sorted(self._offsets.values())

    def newest_count(self, first_offset: int, last_offset: int) -> int:
        """The number of noted records from `first_offset` to `last_offset` that are the newest of
        their keys.
        """
        assert self._newest is not None
        first = bisect_left(self._newest, first_offset)
        return bisect_right(self._newest, last_offset, first) - first

    def are_newest(self, offsets: Mapping[bytes | None, int]) -> bool:
        """True if each of these records is certainly the newest of its key: added as such, or
        without an added key.
        """
        if None in offsets:
            return False
        # Only the two common cases, which need no look at each record: all these offsets were
        # added, or none of these keys was.
        return offsets.items() <= self._offsets.items() or self._offsets.keys().isdisjoint(offsets)

    def is_newest(self, key: bytes | None, offset: int) -> bool:
        """True if no newer record of `key` was seen. Records without a key are not kept in a
        compacted log.
        """
        return key is not None and self._offsets.get(key, -1) <= offset


def keeps_tombstone(delete_horizon_ms: int | None, now_ms: int) -> bool:
    """True if a tombstone stays in this pass; `delete_horizon_ms` is None if no earlier pass has
    read it.
    """
    return delete_horizon_ms is None or now_ms < delete_horizon_ms
