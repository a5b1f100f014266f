"""A worker's read of a range, from brokers that may be behind the end that the driver planned."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from spark_jobs.connector import fetching
from spark_jobs.connector.core.planning import DataLost, OffsetRange
from spark_jobs.connector.fetching import RangeReader
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.batches.records import Record, encode_batch
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol.messages.fetch_codec import PartitionFetched

LEADER, FOLLOWER = 1, 2


class Cluster:
    """The client of a leader that names a follower, if there is one. `ends` are the high watermarks
    that the broker which is read has at one fetch after the other; the last one stays.
    """

    def __init__(self, ends: Sequence[int], *, has_follower: bool) -> None:
        self.ends = list(ends)
        self.has_follower = has_follower
        self.cluster = SimpleNamespace(topics={})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def leader(self, topic: str, partition: int) -> int:
        return LEADER

    def forget_leaders(self, topics: Sequence[str]) -> None:
        pass

    async def offsets_at(
        self, places: Sequence[tuple[str, int]], *_: object, **__: object
    ) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 0)

    async def fetch(self, node: int, request: FetchRequest) -> Any:
        if self.has_follower and node == LEADER:
            return self._answer(PartitionFetched(0, 0, 10, 10, 0, preferred_read_replica=FOLLOWER))
        offset = request.topics[0].partitions[0].fetch_offset
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        records = [Record(key=None, value=b"%d" % at, timestamp_ms=0) for at in range(offset, end)]
        content = memoryview(encode_batch(records, base_offset=offset) if records else b"")
        return self._answer(PartitionFetched(0, 0, end, end, 0, records=content))

    def _answer(self, fetched: PartitionFetched) -> Any:
        topic = SimpleNamespace(partitions=[fetched])
        return SimpleNamespace(throttle_time_ms=0, error_code=0, topics=[topic])


def read(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *, is_failing_on_loss: bool) -> list[int]:
    """The offsets of a range of ten."""

    async def opened(_: object) -> Cluster:
        return cluster

    monkeypatch.setattr(fetching, "open_client", opened)
    reader = RangeReader(
        ClusterOptions(bootstrap="none:1"),
        OffsetRange(topic="t", partition=0, first_offset=0, until_offset=10),
        fetch_bytes=1_000,
        is_failing_on_loss=is_failing_on_loss,
    )
    found = [header for chunk in reader.chunks() for _, header in chunk.batches]
    return [offset for header in found for offset in range(header.base_offset, header.next_offset)]


@pytest.mark.parametrize("has_follower", [True, False])
@pytest.mark.parametrize("is_failing_on_loss", [True, False])
def test_a_replica_that_is_behind_the_planned_end_is_awaited(
    monkeypatch: pytest.MonkeyPatch, has_follower: bool, is_failing_on_loss: bool
) -> None:
    cluster = Cluster([5, 5, 5, 10], has_follower=has_follower)
    assert read(monkeypatch, cluster, is_failing_on_loss=is_failing_on_loss) == list(range(10))


def test_a_log_that_ends_before_the_planned_end_is_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "BEHIND_MS", 0)
    with pytest.raises(DataLost, match="t-0 at offset 5: the log ends before offset 10, which was planned"):
        read(monkeypatch, Cluster([5], has_follower=False), is_failing_on_loss=True)
    assert read(monkeypatch, Cluster([5], has_follower=False), is_failing_on_loss=False) == list(range(5))
