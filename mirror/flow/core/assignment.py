"""Assigns partitions to workers: fetchers by the source's leader, producers by a hash that never
changes. Order within a partition holds because exactly one fetcher reads it and exactly one
producer sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clients.core.slots import stable_slot
from mirror.flow.core.priorities import TopicClass, rank_of
from wire.protocol.ids import TopicPartition

NORMAL_RANK = rank_of(TopicClass.NORMAL, is_backfill=False)


class FetcherKey(NamedTuple):
    """One fetcher: the source broker, its number among that broker's fetchers, and the rank of its
    partitions.
    """

    node_id: int
    stream: int
    rank: int = NORMAL_RANK


def assign_fetchers(
    leaders: Mapping[TopicPartition, int],
    *,
    streams_per_broker: int,
    ranks: Mapping[TopicPartition, int] | None = None,
) -> dict[FetcherKey, frozenset[TopicPartition]]:
    """Partitions to fetchers; a partition without a leader (-1) has no fetcher. Each rank has its
    own fetchers.
    """
    assignment: dict[FetcherKey, set[TopicPartition]] = {}
    for key, leader in leaders.items():
        if leader >= 0:
            rank = (ranks or {}).get(key, NORMAL_RANK)
            fetcher = FetcherKey(leader, stable_slot(key, streams_per_broker), rank)
            assignment.setdefault(fetcher, set()).add(key)
    return {fetcher: frozenset(keys) for fetcher, keys in assignment.items()}
