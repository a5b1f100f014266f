"""The simple consumer against scripted brokers: leaders found again, positions that are gone,
validated epochs (rows SC-01 to SC-10).
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from clients.reader.core.positions import LogTruncated, Position, PositionLost, ResetPolicy
from clients.reader.simple_consumer import NoSuchOffset, SimpleConsumer, SimpleConsumerOptions
from clients.reader.single_fetches import fetch_at_leader
from tests.support.clients.scripted_cluster import FETCH, LIST_OFFSETS, METADATA, ScriptedCluster
from wire.batches.records import decode_records
from wire.client.client_errors import BrokerError, Unreachable
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

PLACE = ("t", 0)


async def read(consumer: SimpleConsumer, position: Position, until: int) -> list[int]:
    found = []
    async for batches in consumer.batches(PLACE, position, until=until):
        found += [
            int(record.value or b"")
            for record in decode_records(batches.records)
            if record.offset >= batches.fetch_offset
        ]
    return found


def consumer_of(
    client: KafkaClient, policy: ResetPolicy = ResetPolicy.FAIL, steps: list[str] | None = None
) -> SimpleConsumer:
    options = SimpleConsumerOptions(policy=policy, max_wait_ms=10, fetch_bytes=300, attempts_max=6)
    return SimpleConsumer(client, options, on_step=(steps if steps is not None else []).append)


async def test_offsets_by_time_are_found_or_refused_but_never_guessed() -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap, retry_budget_ms=300) as client:
        cluster.fill(0, 20)
        cluster.logs[0].expire(5)
        consumer = consumer_of(client)
        assert await consumer.offset_at(PLACE, EARLIEST_TIMESTAMP) == 5
        assert await consumer.offset_at(PLACE, LATEST_TIMESTAMP) == 20
        assert await consumer.offset_at(PLACE, 1012) == 12
        with pytest.raises(NoSuchOffset, match="5000"):
            await consumer.offset_at(PLACE, 5000)
        cluster.fail(LIST_OFFSETS, ErrorCode.topic_authorization_failed)
        with pytest.raises(BrokerError):
            await consumer.offset_at(PLACE, EARLIEST_TIMESTAMP)


async def test_the_same_fetch_brings_the_same_bytes_and_a_follower_refuses_it() -> None:
    async with ScriptedCluster(nodes=2) as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 10)
        consumer = consumer_of(client)
        first, second = [await consumer.fetch(PLACE, Position(3)) for _ in range(2)]
        assert bytes(first.records) == bytes(second.records) != b""
        cluster.move(0, 2)
        with pytest.raises(BrokerError, match="not_leader_or_follower"):
            await fetch_at_leader(client, PLACE, 3, max_bytes=1000)


async def test_a_throttled_answer_that_names_no_partition_is_waited_out() -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 10)
        cluster.throttled_fetches_ms.extend([1, 2])
        fetched = await fetch_at_leader(client, PLACE, 3, max_bytes=1000)
        assert fetched.high_watermark == 10
        assert (cluster.count(FETCH), cluster.count(METADATA)) == (3, 1), (
            "a throttled answer is no reason to look for another leader"
        )


async def test_reading_from_the_middle_of_a_batch_gives_nothing_below_it() -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 30, batch=10)
        assert await read(consumer_of(client), Position(15), 30) == list(range(15, 30))


async def test_steps_come_in_order_and_go_back_to_the_first_when_the_leader_is_gone() -> None:
    steps: list[str] = []
    async with ScriptedCluster(nodes=2) as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 2)
        consumer = consumer_of(client, steps=steps)
        found = await consumer.fetch(PLACE, Position(0))
        cluster.move(0, 2)
        await consumer.fetch(PLACE, found.next)
    assert steps == ["leader", "fetch", "taken", "leader", "fetch", "leader", "validate", "fetch", "taken"]


async def test_a_lost_connection_and_a_moved_leader_leave_no_gap() -> None:
    async with ScriptedCluster(nodes=2) as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 100)
        consumer = consumer_of(client)
        found: list[int] = []
        position = Position(0)
        while len(found) < 100:
            batches = await consumer.fetch(PLACE, position)
            found += [int(record.value or b"") for record in decode_records(batches.records)]
            position = batches.next
            cluster.brokers[1].cut()
            cluster.move(0, 1 + len(found) % 2)
        assert found == list(range(100))


async def test_errors_in_a_row_are_bounded() -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fail(FETCH, *[ErrorCode.not_leader_or_follower] * 6)
        with pytest.raises(BrokerError):
            await consumer_of(client).fetch(PLACE, Position(0))
        assert cluster.count(FETCH) == 6


@pytest.mark.parametrize(
    ("policy", "offset", "expected"),
    [
        (ResetPolicy.EARLIEST, 2, 5),
        (ResetPolicy.LATEST, 2, 20),
        (ResetPolicy.NEAREST, 2, 5),
        (ResetPolicy.NEAREST, 99, 20),
        (ResetPolicy.EARLIEST, 99, 5),
    ],
)
async def test_a_position_that_is_not_in_the_log_moves_as_the_policy_says(
    policy: ResetPolicy, offset: int, expected: int
) -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 20)
        cluster.logs[0].expire(5)
        found = await consumer_of(client, policy).fetch(PLACE, Position(offset))
        assert found.next == Position(expected)


async def test_the_policy_fail_says_where_the_log_is() -> None:
    async with ScriptedCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 20)
        cluster.logs[0].expire(5)
        with pytest.raises(PositionLost, match="5 to 20"):
            await consumer_of(client).fetch(PLACE, Position(2))


@pytest.mark.parametrize("policy", [ResetPolicy.FAIL, ResetPolicy.EARLIEST])
async def test_a_log_that_was_cut_below_what_was_read_is_noticed(policy: ResetPolicy) -> None:
    async with ScriptedCluster(nodes=2) as cluster, KafkaClient(cluster.bootstrap) as client:
        cluster.fill(0, 10)
        consumer = consumer_of(client, policy)
        position = Position(0)
        while position.offset < 10:
            position = (await consumer.fetch(PLACE, position)).next
        cluster.logs[0].truncate(6)
        cluster.move(0, 2)
        cluster.fill(0, 10, first=100)
        if policy is ResetPolicy.FAIL:
            with pytest.raises(LogTruncated, match="offset 6 on"):
                await consumer.fetch(PLACE, position)
        else:
            assert await read(consumer, position, 16) == list(range(100, 110))


async def test_a_leader_is_found_with_most_bootstrap_brokers_gone() -> None:
    async with ScriptedCluster(nodes=3) as cluster:
        cluster.fill(0, 1)
        await cluster.brokers[2].stop()
        await cluster.brokers[3].stop()
        async with KafkaClient(cluster.bootstrap) as client:
            assert await read(consumer_of(client), Position(0), 1) == [0]
        await cluster.brokers[2].start()
        await cluster.brokers[3].start()


async def test_no_broker_at_all_is_reported() -> None:
    async with ScriptedCluster() as cluster:
        bootstrap = cluster.bootstrap
    async with KafkaClient(bootstrap, retry_budget_ms=50) as client:
        with pytest.raises(Unreachable):
            await consumer_of(client).fetch(PLACE, Position(0))
