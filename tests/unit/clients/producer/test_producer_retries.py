"""The producer against scripted brokers: retries, identity, batches that are too large."""

from __future__ import annotations

import asyncio
import random

import pytest
from kio.schema.errors import ErrorCode

from clients.producer.producer_options import DeliveryTimedOut, ProducerClosed, ProducerRecord
from tests.support.clients.scripted_cluster import INIT_PRODUCER_ID, PRODUCE, ScriptedCluster
from tests.support.clients.scripted_producer_runs import numbered, producing, values
from tests.support.eventually import eventually
from wire.batches.record_batch import Compression, read_header
from wire.client.client_errors import BrokerError


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


async def test_after_the_last_attempt_the_record_fails_with_the_brokers_error() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, attempts_max=4) as producer:
        cluster.fail(PRODUCE, *[ErrorCode.not_leader_or_follower] * 4)
        outcome = await producer.send(numbered(1))
        with pytest.raises(BrokerError, match="not_leader_or_follower"):
            await outcome
        assert cluster.count(PRODUCE) == 4


async def test_a_record_without_an_acknowledgement_in_time_fails() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, delivery_timeout_ms=100) as producer:
        cluster.logs[0].leader = -1
        outcome = await producer.send(numbered(1, partition=0))
        with pytest.raises(DeliveryTimedOut, match="100 ms"):
            await outcome
        assert producer.queued_records == 0


async def test_after_an_expired_batch_sequences_begin_at_0_under_another_producer_id() -> None:
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


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_batch_too_large_for_its_topic_is_split(compression: Compression, *, is_idempotent: bool) -> None:
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


async def test_a_batch_that_may_be_in_the_log_is_not_split() -> None:
    async with ScriptedCluster() as cluster, producing(cluster, is_idempotent=True, linger_ms=20.0) as producer:
        cluster.fail(PRODUCE, ErrorCode.request_timed_out, ErrorCode.message_too_large)
        outcomes = [await producer.send(numbered(number, 0)) for number in range(4)]
        found = await asyncio.gather(*outcomes, return_exceptions=True)
        assert all(isinstance(one, BrokerError) for one in found)
        await (await producer.send(numbered(4, 0)))
        assert values(cluster) == [b"4"]
