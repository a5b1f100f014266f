"""Plans the offsets that each task reads, and the end of each trigger of a stream. Pure.

A batch read is divided by bytes, also inside one large partition; a stream is divided only by
offsets, so that a repeated batch is divided as it was the first time (the sink depends on this).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from spark_jobs.connector.core.offsets import LogRange, PartitionOffsets
from wire.protocol.ids import PartitionKey

NO_LIMIT: Final = 0


class DataLost(ValueError):
    """The log has deleted offsets that were planned to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The part of a log that one task reads: from `first_offset` up to `until_offset`, not
    included. `is_first` marks the part at which the log's read begins.
    """

    topic: str
    partition: int
    first_offset: int
    until_offset: int
    is_first: bool = True
    size_bytes: int = 0

    @property
    def place(self) -> PartitionKey:
        """Its partition."""
        return self.topic, self.partition

    @property
    def offsets(self) -> int:
        """The number of offsets that the range spans."""
        return self.until_offset - self.first_offset


def ranges(
    starts: Mapping[PartitionKey, int],
    ends: Mapping[PartitionKey, int],
    logs: Mapping[PartitionKey, LogRange],
    *,
    is_failing_on_loss: bool,
) -> list[OffsetRange]:
    """The ranges to read, without partitions that have nothing to read. Raises DataLost for a start
    before the log's start, unless the read continues without the lost records.
    """
    found = []
    for key in sorted(starts.keys() & ends.keys()):
        first, until = starts[key], ends[key]
        log = logs.get(key)
        if log is not None and first < log.start_offset and until > first:
            if is_failing_on_loss:
                raise DataLost(
                    f"{key[0]}-{key[1]} must be read from offset {first}, but its log starts at {log.start_offset}: "
                    "those records have been deleted. Accepted: a later start, or failOnDataLoss=false"
                )
            first = log.start_offset
        if first < until:
            found.append(OffsetRange(topic=key[0], partition=key[1], first_offset=first, until_offset=until))
    return found


def sized(
    found: Iterable[OffsetRange], logs: Mapping[PartitionKey, LogRange], log_bytes: Mapping[PartitionKey, int]
) -> list[OffsetRange]:
    """The ranges with an estimate of their bytes: their share of the log's offsets."""
    return [
        replace(one, size_bytes=round(log_bytes.get(one.place, 0) * one.offsets / _offsets(logs[one.place])))
        for one in found
    ]


def splits(
    found: Iterable[OffsetRange], *, split_bytes: int, partitions_min: int = 0, offsets_max: int = NO_LIMIT
) -> list[OffsetRange]:
    """The ranges in parts of about `split_bytes` and at most `offsets_max` offsets, and smaller
    ones if there would be fewer than `partitions_min`. As the Kafka connector does, each range gets
    its share of that number.
    """
    wanted = list(found)
    counts = [
        max(
            1,
            -(-one.size_bytes // split_bytes) if split_bytes else 1,
            1 if offsets_max == NO_LIMIT else -(-one.offsets // offsets_max),
        )
        for one in wanted
    ]
    if sum(counts) < partitions_min:
        total = sum(one.offsets for one in wanted)
        counts = [
            max(count, round(partitions_min * one.offsets / total)) for count, one in zip(counts, wanted, strict=True)
        ]
    return [part for one, count in zip(wanted, counts, strict=True) for part in _parts(one, count)]


def largest_first(found: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The ranges by their size, for tasks that share a few cores: a large range that is begun last
    leaves the other cores without work. Ranges of one size keep their order.
    """
    return sorted(found, key=lambda one: -one.size_bytes)


def packed(found: Iterable[OffsetRange], *, bytes_max: int) -> list[tuple[OffsetRange, ...]]:
    """The ranges in groups of about `bytes_max`, in order. For reads that transfer little of a
    range: a task of its own would cost more.
    """
    groups: list[list[OffsetRange]] = []
    size_bytes = 0
    for one in found:
        if not groups or size_bytes + one.size_bytes > bytes_max:
            groups.append([])
            size_bytes = 0
        groups[-1].append(one)
        size_bytes += one.size_bytes
    return [tuple(group) for group in groups]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = max(1, min(count, whole.offsets))
    edges = [whole.first_offset + whole.offsets * number // count for number in range(count + 1)]
    return [
        replace(
            whole,
            first_offset=first,
            until_offset=until,
            is_first=first == whole.first_offset,
            size_bytes=whole.size_bytes // count,
        )
        for first, until in pairwise(edges)
    ]


def limited(starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int], limit: int) -> PartitionOffsets:
    """The end offsets of a trigger that may read `limit` offsets (NO_LIMIT: all): each partition
    gets its share of the offsets that wait, at least one, as in the Kafka connector.
    """
    waiting = {key: end - starts.get(key, end) for key, end in ends.items()}
    total = sum(size for size in waiting.values() if size > 0)
    if limit == NO_LIMIT or total <= limit:
        return dict(ends)
    found = {}
    for key, end in ends.items():
        size = waiting[key]
        share = limit * (size / total) if size > 0 else 0.0
        whole = math.ceil(share) if share < 1 else math.floor(share)
        found[key] = end if size <= 0 else min(end, starts[key] + whole)
    return found


def _offsets(log: LogRange) -> int:
    return max(1, log.end_offset - log.start_offset)
