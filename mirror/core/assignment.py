"""Who works for which partition: fetchers by the source's leader, producers by a hash that never changes.

Order within a partition holds because exactly one fetcher reads it and exactly one producer sends it. The hash is CRC-32
of the name, not Python's own, which differs from process to process.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirror.core.partitions import PartitionKey


class FetcherKey(NamedTuple):
    """One fetcher: the source broker that it reads and its number among that broker's fetchers."""

    node_id: int
    stream: int


def stable_slot(key: PartitionKey, slots: int) -> int:
    """The partition's place among `slots`: partitions of one topic follow each other round the slots."""
    return (zlib.crc32(key.topic.encode()) + key.partition) % slots


def assign_fetchers(
    leaders: Mapping[PartitionKey, int], *, streams_per_broker: int
) -> dict[FetcherKey, frozenset[PartitionKey]]:
    """Partitions to fetchers; a partition without a leader (-1) has no fetcher."""
    assignment: dict[FetcherKey, set[PartitionKey]] = {}
    for key, leader in leaders.items():
        if leader >= 0:
            fetcher = FetcherKey(leader, stable_slot(key, streams_per_broker))
            assignment.setdefault(fetcher, set()).add(key)
    return {fetcher: frozenset(keys) for fetcher, keys in assignment.items()}


def assign_producers(keys: Iterable[PartitionKey], *, producers: int) -> dict[int, frozenset[PartitionKey]]:
    """Partitions to producers, by number."""
    assignment: dict[int, set[PartitionKey]] = {}
    for key in keys:
        assignment.setdefault(stable_slot(key, producers), set()).add(key)
    return {number: frozenset(members) for number, members in assignment.items()}
