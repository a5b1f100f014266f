"""Fetched chunks that were not polled yet: in order, bounded in bytes, returned in parts of a
bounded number of records.

Fetchers put, the poll loop of `consumer.py` takes. A chunk that has more records than a poll may
return is split, inside a batch if necessary: the batch's bytes are then in both parts, and the
parts' positions define which records belong to each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from clients.budget import Budget
from clients.reader.core.opening import split_records
from clients.reader.reader_options import Chunk


class Prefetch:
    """Chunks between fetchers and `poll`, bounded in bytes."""

    def __init__(self, capacity_bytes: int, is_current: Callable[[Chunk], bool]) -> None:
        self._budget = Budget(capacity_bytes=capacity_bytes)
        self._is_current = is_current
        self._chunks: deque[Chunk] = deque()
        self.news = asyncio.Event()

    @property
    def used_bytes(self) -> int:
        """The bytes of the prefetched records."""
        return self._budget.used_bytes

    async def put(self, chunk: Chunk) -> None:
        """Put a chunk, waiting for space; a chunk whose reader was dropped is dropped too."""
        await self._budget.take(_size(chunk))
        self._chunks.append(chunk)
        self.news.set()

    def first(self) -> Chunk | None:
        """The oldest chunk that is still needed."""
        while self._chunks and not self._is_current(self._chunks[0]):
            self.drop_first()
        return self._chunks[0] if self._chunks else None

    def drop_first(self) -> None:
        """Done with the oldest chunk."""
        self._budget.release(_size(self._chunks.popleft()))

    def clean(self) -> None:
        """Drop all chunks of partitions that are not assigned now."""
        stale = [chunk for chunk in self._chunks if not self._is_current(chunk)]
        self._chunks = deque(chunk for chunk in self._chunks if self._is_current(chunk))
        for chunk in stale:
            self._budget.release(_size(chunk))

    def take_first(self, records_max: int) -> Chunk:
        """The oldest chunk, or a part of it with at most this many records (1 or more); the
        remaining part stays the oldest.
        """
        chunk = self._chunks[0]
        split = None if chunk.record_count <= records_max else split_records(chunk.records, chunk.position, records_max)
        if split is None:
            self.drop_first()
            return chunk
        # only the marker shows that a transaction is aborted, so the remaining part keeps the
        # batches before the marker
        left_from = 0 if chunk.aborted else split.left_from
        left = replace(
            chunk,
            position=split.next,
            records=chunk.records[left_from:],
            record_count=chunk.record_count - split.record_count,
        )
        self._budget.release(_size(chunk) - _size(left))
        self._chunks[0] = left
        return replace(chunk, next=split.next, records=chunk.records[: split.end], record_count=split.record_count)


def _size(chunk: Chunk) -> int:
    return max(1, len(chunk.records))
