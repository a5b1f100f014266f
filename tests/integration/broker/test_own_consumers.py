"""The poll-loop consumer and the simple one at a real broker: groups shared with other people's
clients, faults, and `antipode consume`.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clients.consumer.consumer import Consumer
from clients.consumer.consumer_options import ConsumerOptions
from clients.consumer.core.group_protocol import decode_assignment
from clients.consumer.membership import GroupMember, GroupOptions
from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from clients.reader.core.positions import Position, ResetPolicy
from clients.reader.core.readings import Start
from clients.reader.reader_options import ReaderOptions
from clients.reader.simple_consumer import SimpleConsumer
from runtime.addresses import HostPort
from runtime.clock import SystemClock
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.clients.transactional_clients import transactional_producer
from tests.support.eventually import eventually
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.lone_brokers.lone_topics import PARTITIONS, new_topic, produce
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from wire.batches.records import decode_records
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.group_membership import Joined
from wire.protocol.ids import PartitionKey

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    """One for the module, whose groups do not wait for more members."""
    return LoneBroker(session_processes, tmp_path_factory.mktemp("consumers"), group_initial_rebalance_delay_ms="0")


@pytest.fixture
async def topic(broker: LoneBroker) -> str:
    return await new_topic(broker)


def consumer_of(broker: LoneBroker, group: str | None = None, **options: Any) -> Consumer:
    reader = ReaderOptions(policy=ResetPolicy.EARLIEST, max_wait_ms=100, metadata_max_age_ms=300)
    given = ConsumerOptions(
        group_id=group,
        heartbeat_interval_ms=100,
        session_timeout_ms=30_000,
        is_auto_commit=False,
        reader=reader,
        **options,
    )
    return Consumer(lambda: KafkaClient(broker.bootstrap), given)


class Pulled:
    """Polls a consumer in the background and keeps what came."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.values: list[int] = []
        self.places: list[tuple[int, int]] = []
        self._task = asyncio.create_task(self._pull())

    async def _pull(self) -> None:
        while True:
            for chunk in await self.consumer.poll(200):
                for record in self.consumer.opened(chunk):
                    self.values.append(int(record.value or b""))
                    self.places.append((chunk.place[1], record.offset))

    async def has(self, count: int) -> None:
        def enough() -> bool:
            if self._task.done():
                self._task.result()
            return len(self.values) >= count

        await eventually(enough)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_group_is_shared_with_librdkafka_and_handed_over(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import Consumer as Librdkafka

    await produce(broker, topic, 0, 100)
    theirs = Librdkafka(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
        }
    )
    theirs.subscribe([topic])
    async with consumer_of(broker, topic) as ours:
        ours.subscribe([topic])
        pulled = Pulled(ours)

        async def is_shared() -> bool:
            await asyncio.to_thread(theirs.poll, 0.05)
            mine = {partition for _, partition in ours.assignment}
            other = {place.partition for place in theirs.assignment()}
            return len(mine) == len(other) == 2 and mine | other == set(range(PARTITIONS))

        await eventually(is_shared)
        await asyncio.to_thread(theirs.close)
        await eventually(lambda: len(ours.assignment) == PARTITIONS)
        await pulled.has(100)
        await eventually(lambda: set(pulled.values) == set(range(100)))
        # the others had committed nothing before they left, so it has begun again with their
        # partitions and its own
        await eventually(lambda: sum(at.offset for at in ours.positions().values()) == 100)
        await pulled.stop()
        await ours.commit()
    await produce(broker, topic, 100, 104)
    rest = await asyncio.to_thread(librdkafka_consume, broker.bootstrap, topic, 4, group=topic)
    assert {int(record.value or b"") for record in rest} == set(range(100, 104))


async def test_java_goes_on_where_we_committed_and_we_where_java_did(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    await produce(broker, topic, 0, 40)
    async with consumer_of(broker, topic) as ours:
        ours.subscribe([topic])
        pulled = Pulled(ours)
        await pulled.has(40)
        await pulled.stop()
        await ours.commit()
    await produce(broker, topic, 40, 60)
    theirs = await asyncio.to_thread(
        lambda: kafka_programs.consume(
            broker.bootstrap, topic, 20, group=topic, settings={"auto.offset.reset": "earliest"}
        )
    )
    assert {int(value) for value in theirs} == set(range(40, 60))
    await produce(broker, topic, 60, 64)
    async with consumer_of(broker, topic) as ours:
        ours.subscribe([topic])
        pulled = Pulled(ours)
        await pulled.has(4)
        await pulled.stop()
    assert set(pulled.values) == set(range(60, 64))


async def test_two_of_ours_share_what_a_pattern_matches_and_find_new_topics(broker: LoneBroker) -> None:
    prefix = f"p{uuid.uuid4().hex[:6]}"
    await new_topic(broker, prefix)
    async with consumer_of(broker, prefix) as one, consumer_of(broker, prefix) as other:
        for consumer in (one, other):
            consumer.subscribe(re.compile(f"{prefix}-.*"))
        pulled = [Pulled(consumer) for consumer in (one, other)]
        await eventually(lambda: len(one.assignment) == len(other.assignment) == 2)
        later = await new_topic(broker, prefix)
        await eventually(lambda: {later} <= {name for name, _ in one.assignment | other.assignment})
        await eventually(
            lambda: len(one.assignment | other.assignment) == 2 * PARTITIONS and not one.assignment & other.assignment
        )
        for each in pulled:
            await each.stop()


async def test_a_member_with_malformed_metadata_takes_nothing_from_the_others(broker: LoneBroker, topic: str) -> None:
    """NC-05."""
    group = f"g-{topic}"
    given = GroupOptions(
        group_id=group,
        protocol_type="consumer",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        heartbeat_interval_ms=100,
    )

    async def assign_nothing(joined: Joined) -> dict[str, bytes]:
        return {}

    async with consumer_of(broker, group) as consumer, KafkaClient(broker.bootstrap) as client:
        consumer.subscribe([topic])
        pulled = Pulled(consumer)
        await eventually(lambda: len(consumer.assignment) == PARTITIONS)
        stranger = GroupMember(client, given, SystemClock())
        membership = await stranger.join([("range", b"\x00")], assign_nothing)
        assert membership.joined.leader != membership.joined.member_id
        assert decode_assignment(membership.assignment) == frozenset()
        assert "its metadata is malformed" in consumer.last_problem
        await produce(broker, topic, 0, 8)
        await pulled.has(8)
        await pulled.stop()
        await stranger.leave()


async def test_a_killed_coordinator_and_leader_cost_no_record_of_a_group(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = await asyncio.to_thread(lambda: start_broker(group_initial_rebalance_delay_ms="0"))
    async with KafkaClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic(name="t", partition_count=PARTITIONS)])
    await produce(broker, "t", 0, 200)
    async with consumer_of(broker, "g") as ours:
        ours.subscribe(["t"])
        pulled = Pulled(ours)
        await pulled.has(200)
        await ours.commit()
        broker.process.kill()
        await asyncio.to_thread(broker.restart)
        await produce(broker, "t", 200, 300)
        await pulled.has(300)
        await ours.commit()
        await pulled.stop()
        assert sorted(pulled.values) == list(range(300))
    async with KafkaClient(broker.bootstrap) as client:
        committed = await client.committed("g")
    assert sum(offset.offset for offset in committed.values()) == 300


async def test_a_slow_broker_slows_the_consumer_and_loses_nothing(
    broker: LoneBroker, topic: str, toxiproxy: Toxiproxy
) -> None:
    await produce(broker, topic, 0, 400)
    proxy = toxiproxy.create("slow", broker.bootstrap)
    proxy.add("latency", latency=30, jitter=20)
    proxy.add("slicer", average_size=200, size_variation=100, delay=50)
    places: list[PartitionKey] = [(topic, partition) for partition in range(PARTITIONS)]

    class ThroughProxy(KafkaClient):
        def learn(self, cluster: Any) -> None:
            super().learn(cluster)
            self._readdress()

        def _readdress(self) -> None:
            address = HostPort("127.0.0.1", proxy.port)
            brokers = {node: one._replace(address=address) for node, one in self._cluster.brokers.items()}
            self._cluster = self._cluster._replace(brokers=brokers)

        async def _refresh(self, *arguments: Any, **named: Any) -> Any:
            found = await super()._refresh(*arguments, **named)
            self._readdress()
            return found

    reader = ReaderOptions(policy=ResetPolicy.FAIL, max_wait_ms=100, partition_bytes=300, leader_backoff_ms=20)
    options = ConsumerOptions(reader=reader, prefetch_bytes=2_000)
    async with Consumer(lambda: ThroughProxy(proxy.address), options) as ours:
        ours.assign(dict.fromkeys(places, Start(Position(0))))
        pulled = Pulled(ours)
        await pulled.has(100)
        with proxy.cut_off():
            await eventually(lambda: ours.reader.topics.last_problem != "")
        await pulled.has(400)
        await pulled.stop()
    assert sorted(pulled.values) == list(range(400))
    for partition in range(PARTITIONS):
        offsets = [offset for index, offset in pulled.places if index == partition]
        assert offsets == list(range(100))


def transact(broker: LoneBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap, topic)
    for number, is_committed in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for value in range(number * 5, number * 5 + 5):
            producer.produce(topic, b"%d" % value, partition=0)
        producer.flush(120)
        if is_committed:
            producer.commit_transaction(120)
        else:
            producer.abort_transaction(120)


@pytest.mark.parametrize(("isolation", "expected"), [(0, [*range(20)]), (1, [*range(5), *range(10, 15)])])
async def test_aborted_records_are_left_out_for_read_committed_consumers(
    broker: LoneBroker, topic: str, isolation: int, expected: list[int]
) -> None:
    await asyncio.to_thread(transact, broker, topic)
    reader = ReaderOptions(policy=ResetPolicy.FAIL, max_wait_ms=100, isolation_level=isolation)
    async with Consumer(lambda: KafkaClient(broker.bootstrap), ConsumerOptions(reader=reader)) as ours:
        ours.assign({(topic, 0): Start(Position(0))})
        pulled = Pulled(ours)
        await pulled.has(len(expected))
        await eventually(lambda: ours.lag((topic, 0)) == 0)
        await pulled.stop()
    assert pulled.values == expected


async def test_the_simple_consumer_resumes_exactly_after_a_stored_offset(broker: LoneBroker, topic: str) -> None:
    await produce(broker, topic, 0, 80)
    place = (topic, 1)
    found: list[int] = []
    offset = 0
    while offset < 20:
        async with KafkaClient(broker.bootstrap) as client:
            batches = await SimpleConsumer(client).fetch(place, Position(offset))
        for record in decode_records(batches.records):
            if record.offset == offset and len(found) < (offset // 7 + 1) * 7:
                found.append(int(record.value or b""))
                offset += 1
    assert found == list(range(1, 80, 4))


async def test_a_record_of_10_mib_passes_with_fetches_of_1_mib_and_its_neighbours_with_it(broker: LoneBroker) -> None:
    """NC-10, FT-13: a broker answers one whole batch however small the fetch is (KIP-74)."""
    name = f"large-{uuid.uuid4().hex[:8]}"
    large = bytes(10 * MEBIBYTE)
    async with KafkaClient(broker.bootstrap) as client:
        configs = {"max.message.bytes": str(12 * MEBIBYTE)}
        (made,) = await client.create_topics([NewTopic(name=name, partition_count=2, configs=configs)])
        assert not made.error_code, made
    options = ProducerOptions(request_bytes_max=16 * MEBIBYTE, batch_bytes_max=1000)
    async with Producer(KafkaClient(broker.bootstrap), options) as producer:
        for value in (b"before", large, b"after"):
            await (await producer.send(ProducerRecord(topic=name, value=value, partition=0)))
        await (await producer.send(ProducerRecord(topic=name, value=b"neighbour", partition=1)))
    places: dict[PartitionKey, Start] = {(name, partition): Start(Position(0)) for partition in range(2)}
    async with consumer_of(broker) as consumer:
        assert consumer.options.reader.partition_bytes == MEBIBYTE
        consumer.assign(places)
        found: dict[int, list[bytes | None]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 4:
            for chunk in await consumer.poll(30_000):
                found[chunk.place[1]] += [record.value for record in consumer.opened(chunk)]
    assert found == {0: [b"before", large, b"after"], 1: [b"neighbour"]}
