"""The producer against scripted brokers: age of metadata, pools, records without keys."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from clients.core.partitioners import RoundRobinPartitioner
from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from clients.producer.producer_pool import ProducerPool
from tests.support.clients.scripted_cluster import METADATA, PRODUCE, ScriptedCluster
from tests.support.clients.scripted_producer_runs import numbered, producing
from tests.support.eventually import eventually
from wire.client.raw_client import KafkaClient


async def test_metadata_is_requested_at_first_use_and_after_failures_only() -> None:
    async with ScriptedCluster() as cluster, producing(cluster) as producer:
        for number in range(5):
            await (await producer.send(numbered(number)))
        assert producer.metadata_refreshes == 1
        cluster.fail(PRODUCE, ErrorCode.not_leader_or_follower)
        await (await producer.send(numbered(5)))
        assert producer.metadata_refreshes >= 2


async def test_a_negative_age_refreshes_metadata_after_failures_only() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, metadata_max_age_ms=-1) as producer:
        for number in range(20):
            await (await producer.send(numbered(number)))
        first_uses = cluster.count(METADATA)
        assert producer.metadata_refreshes == 1
        cluster.fail(PRODUCE, ErrorCode.not_leader_or_follower)
        await (await producer.send(numbered(20)))
        assert (producer.metadata_refreshes, cluster.count(METADATA) > first_uses) == (2, True)


async def test_an_age_of_0_refreshes_metadata_after_each_record() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, metadata_max_age_ms=0) as producer:
        for number in range(5):
            before = producer.metadata_refreshes
            await (await producer.send(numbered(number)))
            await eventually(lambda before=before: producer.metadata_refreshes > before)
        settled = producer.metadata_refreshes
        await producer.flush()
        assert producer.metadata_refreshes == settled, "nothing was sent since"


async def test_new_partitions_are_found_when_metadata_is_old() -> None:
    options = {"metadata_max_age_ms": 20, "partitioner": RoundRobinPartitioner}
    async with ScriptedCluster(partitions=2) as cluster, producing(cluster, **options) as producer:
        await (await producer.send(numbered(0)))
        added = type(cluster.logs[0])()
        added.leader = 1
        cluster.logs.append(added)

        async def is_used() -> bool:
            return (await (await producer.send(numbered(1)))).partition == 2

        await eventually(is_used)


async def test_a_pool_keeps_the_order_of_every_partition() -> None:
    async with ScriptedCluster(nodes=2, partitions=4) as cluster:
        options = ProducerOptions(retry_backoff_ms=5, batch_records_max=3)
        producers = [Producer(KafkaClient(cluster.bootstrap), options) for _ in range(3)]
        async with ProducerPool(producers) as pool:
            cluster.fail(PRODUCE, ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out)
            for number in range(100):
                await pool.send(ProducerRecord(topic="t", key=b"%d" % (number % 7), value=b"%d" % number))
            await pool.flush()
        assert sum(producer.counts.delivered > 0 for producer in producers) > 1
        for log in cluster.logs:
            found = [int(record.value or b"") for record in log.records()]
            for key in range(7):
                of_key = [number for number in found if number % 7 == key]
                assert of_key == sorted(of_key)
        assert sum(len(log.records()) for log in cluster.logs) == 100


async def test_a_pool_spreads_records_without_keys_over_all_partitions() -> None:
    async with ScriptedCluster(nodes=2, partitions=4) as cluster:
        options = ProducerOptions(linger_ms=1, batch_records_max=5)
        async with ProducerPool([Producer(KafkaClient(cluster.bootstrap), options) for _ in range(4)]) as pool:
            for number in range(1000):
                await pool.send(numbered(number))
            await pool.flush()
        assert all(len(log.records()) >= 50 for log in cluster.logs)


async def test_records_without_keys_change_their_partition_after_a_batch_s_bytes_though_no_batch_is_full() -> None:
    async with ScriptedCluster(partitions=4) as cluster, producing(cluster, batch_bytes_max=1000) as producer:
        # some 50 choices of a partition: that one of four is never chosen has a chance of 1 to
        # 400,000
        for number in range(600):
            await producer.send(numbered(number))
            await producer.flush()
        assert all(len(log.records()) >= 10 for log in cluster.logs)
        batches = {(record.timestamp_ms, record.value) for log in cluster.logs for record in log.records()}
        assert len(batches) == 600


async def test_a_record_may_have_timestamp_0() -> None:
    async with ScriptedCluster() as cluster, producing(cluster) as producer:
        await (await producer.send(ProducerRecord(topic="t", value=b"1", timestamp_ms=0)))
        assert [record.timestamp_ms for record in cluster.logs[0].records()] == [0]


async def test_an_unused_deleted_topic_is_not_created_again() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, metadata_max_age_ms=20.0) as producer:
        await (await producer.send(numbered(1)))
        (broker,) = cluster.brokers.values()
        before = cluster.count(METADATA)
        await eventually(lambda: cluster.count(METADATA) >= before + 3)
        assert not any(asked.allow_auto_topic_creation for asked in broker.requests(METADATA)[before + 1 :])
