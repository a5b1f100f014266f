"""The assignment of partitions to fetchers and producers."""

from __future__ import annotations

from collections import Counter

from clients.core.slots import stable_slot
from mirror.flow.core.assignment import FetcherKey, assign_fetchers
from wire.protocol.ids import TopicPartition


def test_each_partition_has_one_fetcher_at_its_leader_and_one_lasting_producer() -> None:
    leaders = {TopicPartition("t", index): (1 if index < 4 else 2 if index < 8 else -1) for index in range(10)}
    assigned = assign_fetchers(leaders, streams_per_broker=2)
    assert {key.node_id for key in assigned} == {1, 2}
    assert sorted(key for keys in assigned.values() for key in keys) == [key for key in leaders if leaders[key] >= 0]
    assert all(len(keys) == 2 for keys in assigned.values())
    assert FetcherKey(1, 0) in assigned
    assert set(Counter(stable_slot(key, 5) for key in leaders).values()) == {2}
