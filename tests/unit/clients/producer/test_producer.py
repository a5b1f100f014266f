"""The producer against scripted brokers: queue policies, batching, retries, identity, closing (rows
P-01 to P-18).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from kio.schema.errors import ErrorCode

from clients.budget import QueueFull
from clients.core.partitioners import Choice, Draw, Murmur2Partitioner, PartitionOutOfRange, RoundRobinPartitioner
from clients.producer.producer import Producer
from clients.producer.producer_options import DeliveryTimedOut, ProducerClosed, ProducerOptions, ProducerRecord
from clients.producer.producer_pool import ProducerPool
from tests.support.clients.scripted_cluster import INIT_PRODUCER_ID, METADATA, PRODUCE, ScriptedCluster
from tests.support.eventually import eventually
from wire.batches.record_batch import LOG_OVERHEAD, Compression, read_header
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient

QUICK = {"retry_backoff_ms": 5.0, "linger_ms": 1.0}


def numbered(number: int, partition: int | None = None) -> ProducerRecord:
    return ProducerRecord(topic="t", value=b"%d" % number, partition=partition)


@asynccontextmanager
async def producing(cluster: ScriptedCluster, **options: object) -> AsyncIterator[Producer]:
    given = ProducerOptions(**{**QUICK, **options})  # type: ignore[arg-type]
    async with Producer(KafkaClient(cluster.bootstrap, retry_budget_ms=2000), given) as producer:
        yield producer


def values(cluster: ScriptedCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.logs[partition].records()]


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


async def test_a_topic_that_is_not_there_is_named() -> None:
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


async def test_a_partitioner_that_returns_no_number_is_named() -> None:
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


async def test_a_full_batch_goes_at_once_and_the_rest_when_time_is_up() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, batch_records_max=4, linger_ms=50) as producer:
        for number in range(5):
            await producer.send(numbered(number))
        await eventually(lambda: len(values(cluster)) == 5)
        assert [read_header(batch).record_count for batch in cluster.logs[0].batches] == [4, 1]


async def test_callbacks_come_in_the_order_of_the_sends_and_say_where_records_are() -> None:
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


async def test_only_the_partition_that_failed_is_sent_again() -> None:
    async with ScriptedCluster(partitions=3) as cluster, producing(cluster, linger_ms=30) as producer:
        cluster.fail(PRODUCE, ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.none)
        for partition in range(3):
            await producer.send(numbered(partition, partition))
        await producer.flush()
        assert [values(cluster, partition) for partition in range(3)] == [[b"0"], [b"1"], [b"2"]]
        assert producer.counts.retries == 1


async def test_a_leader_that_moves_is_found_and_order_holds() -> None:
    async with ScriptedCluster(nodes=2) as cluster, producing(cluster, batch_records_max=2) as producer:
        for number in range(40):
            await producer.send(numbered(number))
            if number in (10, 30):
                await producer.flush()
                cluster.move(0, 2 if number == 10 else 1)
        await producer.flush()
        assert values(cluster) == [b"%d" % number for number in range(40)]
        assert producer.counts.failed == 0


async def test_a_broker_that_stays_silent_fails_the_request_and_the_batch_is_recognised_again() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, request_timeout_ms=150) as producer:
        cluster.silent.add(PRODUCE)
        outcome = await producer.send(numbered(1))
        await eventually(lambda: producer.counts.retries > 0)
        cluster.silent.clear()
        assert (await outcome).offset == -1
        assert values(cluster) == [b"1"]


async def test_after_so_many_attempts_the_record_fails_with_the_brokers_word() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, attempts_max=4) as producer:
        cluster.fail(PRODUCE, *[ErrorCode.not_leader_or_follower] * 4)
        outcome = await producer.send(numbered(1))
        with pytest.raises(BrokerError, match="not_leader_or_follower"):
            await outcome
        assert cluster.count(PRODUCE) == 4


async def test_a_record_that_nobody_acknowledges_in_time_fails() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, delivery_timeout_ms=100) as producer:
        cluster.logs[0].leader = -1
        outcome = await producer.send(numbered(1, partition=0))
        with pytest.raises(DeliveryTimedOut, match="100 ms"):
            await outcome
        assert producer.queued_records == 0


async def test_after_a_batch_is_given_up_sequences_begin_anew_under_another_identity() -> None:
    async with ScriptedCluster() as cluster, producing(cluster) as producer:
        await (await producer.send(numbered(0)))
        cluster.fail(PRODUCE, ErrorCode.out_of_order_sequence_number)
        with pytest.raises(BrokerError):
            await (await producer.send(numbered(1)))
        await (await producer.send(numbered(2)))
        found = [read_header(batch) for batch in cluster.logs[0].batches]
        assert [(header.producer_id, header.base_sequence) for header in found] == [(1, 0), (2, 0)]
        assert cluster.count(INIT_PRODUCER_ID) == 2


async def test_aborting_on_failure_writes_nothing_after_a_lost_record() -> None:
    options = {"is_aborting_on_failure": True, "batch_records_max": 1}
    async with ScriptedCluster() as cluster, producing(cluster, **options) as producer:
        cluster.fail(PRODUCE, ErrorCode.none, ErrorCode.message_too_large)
        outcomes = [await producer.send(numbered(number)) for number in range(4)]
        await asyncio.wait(outcomes)
        assert values(cluster) == [b"0"]
        assert [type(outcome.exception()) for outcome in outcomes] == [type(None), *[BrokerError] * 3]
        with pytest.raises(ProducerClosed, match="message_too_large"):
            await producer.send(numbered(4))


async def test_closing_delivers_what_is_queued() -> None:
    async with ScriptedCluster() as cluster:
        async with producing(cluster, linger_ms=60_000) as producer:
            outcomes = [await producer.send(numbered(number)) for number in range(3)]
        assert [outcome.result().offset for outcome in outcomes] == [0, 1, 2]
        with pytest.raises(ProducerClosed):
            await producer.send(numbered(3))


async def test_closing_in_a_hurry_fails_what_is_left() -> None:
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


async def test_whole_batches_pass_unopened() -> None:
    raw = encode_batch([Record(b"k", b"%d" % number, 5) for number in range(10)])
    async with ScriptedCluster() as cluster, producing(cluster, is_idempotent=False) as producer:
        await (await producer.send_batch("t", 0, raw))
        assert cluster.logs[0].batches[0][LOG_OVERHEAD + 4 :] == raw[LOG_OVERHEAD + 4 :]


async def test_metadata_is_asked_at_first_use_and_after_failures_only() -> None:
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
        for number in range(300):
            await producer.send(numbered(number))
            await producer.flush()
        assert all(len(log.records()) >= 10 for log in cluster.logs)
        batches = {(record.timestamp_ms, record.value) for log in cluster.logs for record in log.records()}
        assert len(batches) == 300


async def test_a_record_may_be_of_the_first_moment_of_all_time() -> None:
    async with ScriptedCluster() as cluster, producing(cluster) as producer:
        await (await producer.send(ProducerRecord(topic="t", value=b"1", timestamp_ms=0)))
        assert [record.timestamp_ms for record in cluster.logs[0].records()] == [0]


async def test_a_topic_that_nobody_sends_to_any_more_is_not_made_again() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, metadata_max_age_ms=20.0) as producer:
        await (await producer.send(numbered(1)))
        (broker,) = cluster.brokers.values()
        before = cluster.count(METADATA)
        await eventually(lambda: cluster.count(METADATA) >= before + 3)
        assert not any(asked.allow_auto_topic_creation for asked in broker.requests(METADATA)[before + 1 :])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_batch_too_large_for_its_topic_is_taken_apart(compression: Compression, *, is_idempotent: bool) -> None:
    """P-15 (KIP-126): every record would fit; order and sequences hold, and later batches are small
    from the start.
    """
    async with ScriptedCluster() as cluster:
        cluster.batch_bytes_max = 700
        options = {"is_idempotent": is_idempotent, "compression": compression, "linger_ms": 20.0, "attempts_max": 1}
        async with producing(cluster, **options) as producer:
            chance = random.Random(1)
            sent = [b"%d " % number + chance.randbytes(90) for number in range(100)]
            places = []
            for half in (sent[:50], sent[50:]):
                before = cluster.count(PRODUCE)
                outcomes = [
                    await producer.send(ProducerRecord(topic="t", value=value, headers=(("h", b"1"),)))
                    for value in half
                ]
                places += [await outcome for outcome in outcomes]
            later = cluster.count(PRODUCE) - before
        assert values(cluster) == sent
        assert [place.offset for place in places] == list(range(100))
        assert {record.headers[0] for record in cluster.logs[0].records()} == {("h", b"1")}
        headers = [read_header(batch) for batch in cluster.logs[0].batches]
        assert later == sum(header.base_offset >= 50 for header in headers)
        if is_idempotent:
            assert len({header.producer_id for header in headers}) == 1
            assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


async def test_a_record_too_large_by_itself_fails_alone() -> None:
    async with ScriptedCluster() as cluster:
        cluster.batch_bytes_max = 300
        async with producing(cluster, is_idempotent=True, linger_ms=20.0) as producer:
            sent = [b"small 1", b"x" * 400, b"small 2", b"small 3"]
            outcomes = [await producer.send(ProducerRecord(topic="t", value=value)) for value in sent]
            found = await asyncio.gather(*outcomes, return_exceptions=True)
        assert [isinstance(one, BrokerError) for one in found] == [False, True, False, False]
        assert values(cluster) == [b"small 1", b"small 2", b"small 3"]
        headers = [read_header(batch) for batch in cluster.logs[0].batches]
        assert len({header.producer_id for header in headers}) == 1
        assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


async def test_a_batch_that_may_be_in_the_log_is_not_taken_apart() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, is_idempotent=True, linger_ms=20.0) as producer:
        cluster.fail(PRODUCE, ErrorCode.request_timed_out, ErrorCode.message_too_large)
        outcomes = [await producer.send(numbered(number, 0)) for number in range(4)]
        found = await asyncio.gather(*outcomes, return_exceptions=True)
        assert all(isinstance(one, BrokerError) for one in found)
        await (await producer.send(numbered(4, 0)))
        assert values(cluster) == [b"4"]
