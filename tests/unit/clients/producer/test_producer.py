"""The producer against scripted brokers: routing, queue policies, batching, closing (rows P-01 to
P-18).
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from kio.schema.errors import ErrorCode

from clients.budget import QueueFull
from clients.core.partitioners import Choice, Draw, Murmur2Partitioner, PartitionOutOfRange, RoundRobinPartitioner
from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerClosed, ProducerOptions, ProducerRecord
from tests.support.clients.scripted_cluster import METADATA, PRODUCE, ScriptedCluster
from tests.support.clients.scripted_producer_runs import numbered, producing, values
from tests.support.eventually import eventually
from wire.batches.record_batch import read_header
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient


async def test_one_bootstrap_address_reaches_every_leader() -> None:
    async with ScriptedCluster(nodes=3, partitions=3) as cluster:
        client = KafkaClient([cluster.brokers[1].address])
        async with Producer(client, ProducerOptions(partitioner=RoundRobinPartitioner)) as producer:
            places = [await (await producer.send(numbered(number))) for number in range(6)]
        assert sorted(place.partition for place in places) == [0, 0, 1, 1, 2, 2]
        assert [len(values(cluster, partition)) for partition in range(3)] == [2, 2, 2]


async def test_the_partition_key_routes_and_the_key_is_stored() -> None:
    async with ScriptedCluster(partitions=5) as cluster, producing(cluster) as producer:
        plain = ProducerRecord(topic="t", key=b"a", value=b"1")
        routed = ProducerRecord(topic="t", key=b"a", value=b"2", partition_key=b"b")
        places = [await (await producer.send(record)) for record in (plain, routed)]
        choices = [Choice(topic="t", key=key, partition_count=5, available=range(5)) for key in (b"a", b"b")]
        assert [place.partition for place in places] == [
            Murmur2Partitioner().choose(one, lambda _: 0) for one in choices
        ]
        assert {record.key for log in cluster.logs for record in log.records()} == {b"a"}


async def test_a_record_without_a_topic_is_refused_before_anything_is_sent() -> None:
    async with ScriptedCluster() as cluster, producing(cluster) as producer:
        with pytest.raises(ValueError, match="topic"):
            await producer.send(ProducerRecord(topic="", value=b""))
        assert cluster.count(METADATA) == 0


async def test_the_error_names_a_missing_topic() -> None:
    async with ScriptedCluster() as cluster:
        cluster.is_topic_there = False
        async with producing(cluster, metadata_timeout_ms=50) as producer:
            with pytest.raises(BrokerError, match="unknown_topic_or_partition"):
                await producer.send(numbered(1))


async def test_a_partitioner_beyond_the_topic_sends_nothing() -> None:
    class Beyond(Murmur2Partitioner):
        def choose(self, choice: Choice, draw: Draw) -> int:
            return choice.partition_count

    async with ScriptedCluster(partitions=3) as cluster, producing(cluster, partitioner=Beyond) as producer:
        with pytest.raises(PartitionOutOfRange, match="0 to 2"):
            await producer.send(numbered(1))
        assert cluster.count(PRODUCE) == 0


async def test_the_error_names_a_partitioner_that_returns_no_number() -> None:
    class Nonsense(Murmur2Partitioner):
        def choose(self, choice: Choice, draw: Draw) -> int:
            return cast("int", None)

    async with ScriptedCluster(partitions=3) as cluster, producing(cluster, partitioner=Nonsense) as producer:
        with pytest.raises(PartitionOutOfRange, match="returned partition None"):
            await producer.send(numbered(1))


async def test_enqueue_timeout_0_refuses_at_once_and_counts() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, queue_records_max=10, enqueue_timeout_ms=0) as producer:
        cluster.going.clear()
        for number in range(10):
            await producer.send(numbered(number))
        with pytest.raises(QueueFull):
            await producer.send(numbered(10))
        assert (producer.dropped_records, producer.queued_records) == (1, 10)
        cluster.going.set()
        await producer.flush()
        assert values(cluster) == [b"%d" % number for number in range(10)]


async def test_a_positive_enqueue_timeout_waits_and_then_refuses() -> None:
    options = {"queue_records_max": 10, "enqueue_timeout_ms": 200}
    async with ScriptedCluster() as cluster, producing(cluster, **options) as producer:
        cluster.going.clear()
        for number in range(10):
            await producer.send(numbered(number))
        with pytest.raises(QueueFull, match="200 ms"):
            await producer.send(numbered(10))
        waiting = asyncio.create_task(producer.send(numbered(10)))
        await asyncio.sleep(0)
        cluster.going.set()
        await (await waiting)
        assert len(values(cluster)) == 11


async def test_enqueue_timeout_minus_1_waits_until_the_broker_goes_on_and_loses_nothing() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, queue_records_max=10) as producer:
        cluster.going.clear()
        sending = asyncio.create_task(_send_all(producer, 50))
        await eventually(lambda: producer.queued_records == 10)
        assert not sending.done()
        cluster.going.set()
        await sending
        await producer.flush()
        assert values(cluster) == [b"%d" % number for number in range(50)]
        assert producer.dropped_records == 0


async def _send_all(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send(numbered(number))


async def test_a_full_batch_is_sent_immediately_and_others_after_the_linger_time() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, batch_records_max=4, linger_ms=50) as producer:
        for number in range(5):
            await producer.send(numbered(number))
        await eventually(lambda: len(values(cluster)) == 5)
        assert [read_header(batch).record_count for batch in cluster.logs[0].batches] == [4, 1]


async def test_callbacks_come_in_the_order_of_the_sends_with_the_records_offsets() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, batch_records_max=3) as producer:
        seen: list[int] = []
        cluster.fail(PRODUCE, ErrorCode.not_leader_or_follower)
        for number in range(20):
            outcome = await producer.send(numbered(number))
            outcome.add_done_callback(lambda done: seen.append(done.result().offset))
        await producer.flush()
        await asyncio.sleep(0)
        assert seen == list(range(20))
        assert producer.counts.delivered == 20


async def test_closing_delivers_what_is_queued() -> None:
    async with ScriptedCluster() as cluster:
        async with producing(cluster, linger_ms=60_000) as producer:
            outcomes = [await producer.send(numbered(number)) for number in range(3)]
        assert [outcome.result().offset for outcome in outcomes] == [0, 1, 2]
        with pytest.raises(ProducerClosed):
            await producer.send(numbered(3))


async def test_closing_without_time_fails_the_queued_records() -> None:
    async with ScriptedCluster() as cluster:
        async with producing(cluster) as producer:
            cluster.going.clear()
            outcome = await producer.send(numbered(1))
            await producer.close(timeout_ms=20)
        with pytest.raises(ProducerClosed):
            outcome.result()


async def test_acks_0_sends_without_waiting_for_an_answer() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, acks=0, is_idempotent=False) as producer:
        assert (await (await producer.send(numbered(1)))).offset == -1
        await eventually(lambda: values(cluster) == [b"1"])
