"""The fetchers of a reader: which partitions each has, and that they fetch side by side (rows FT-05
to FT-07).
"""

from __future__ import annotations

import asyncio

import pytest

from clients.consumer.consumer import Consumer
from clients.consumer.consumer_options import ConsumerOptions
from clients.reader.reader_options import ReaderOptions
from tests.support.clients.scripted_cluster import FETCH, ScriptedCluster
from tests.support.eventually import eventually
from tests.unit.clients.consumer.test_consumer import FROM_0, P0, P1, consuming, fetchers
from wire.client.raw_client import KafkaClient


async def test_two_fetchers_of_a_broker_share_its_partitions_and_fetch_side_by_side() -> None:
    reader = ReaderOptions(max_wait_ms=20, leader_backoff_ms=5, partition_bytes=400, fetchers=2)
    options = ConsumerOptions(group_instance_id="c", reader=reader)
    async with (
        ScriptedCluster(nodes=2, partitions=8) as cluster,
        Consumer(lambda: KafkaClient(cluster.bootstrap), options) as consumer,
    ):
        cluster.going.clear()
        for partition in range(8):
            cluster.fill(partition, 40, batch=4)
            cluster.logs[partition].leader = 1 + partition // 4
        consumer.assign({("t", partition): FROM_0 for partition in range(8)})
        await eventually(lambda: [len(cluster.brokers[node].requests(FETCH)) for node in (1, 2)] == [2, 2])
        asked = [
            sorted(partition.partition for topic in request.topics for partition in topic.partitions)
            for node in (1, 2)
            for request in cluster.brokers[node].requests(FETCH)
        ]
        assert sorted(asked) == [[0, 2], [1, 3], [4, 6], [5, 7]]
        assert consumer.reader.fetcher_names == [
            f"ConsumerFetcherThread-c-{number}-{node}" for node in (1, 2) for number in (0, 1)
        ]
        cluster.going.set()
        found: dict[int, list[int]] = {}
        async with asyncio.timeout(60):
            while sum(map(len, found.values())) < 320:
                for chunk in await consumer.poll(1000):
                    values = [int(record.value or b"") for record in consumer.opened(chunk)]
                    found.setdefault(chunk.place[1], []).extend(values)
        assert found == {partition: list(range(40)) for partition in range(8)}


def test_no_fetchers_are_refused() -> None:
    with pytest.raises(ValueError, match="accepted is 1 or more"):
        ReaderOptions(fetchers=0)


async def test_an_idle_fetcher_ends_and_an_empty_one_does_not_spin() -> None:
    async with ScriptedCluster(nodes=2, partitions=2) as cluster, consuming(cluster) as consumer:
        consumer.assign({P0: FROM_0, P1: FROM_0})
        await eventually(lambda: fetchers(consumer) == ["0-1", "0-2"])
        consumer.assign({P0: FROM_0})
        await eventually(lambda: fetchers(consumer) == ["0-1"])
        consumer.pause([P0])
        await eventually(lambda: not consumer.reader.readings.fetchable(1))
        before = consumer.reader.fetches
        await consumer.poll(100)
        assert consumer.reader.fetches <= before + 1
