"""Transactions, and groups of the newer protocol, at the two sites of a link: their coordinators,
and the effects of a promotion on them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import fetch_at_leader, records_of
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.clients.transactional_clients import WITHIN_S, read_values, transactional_producer
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.processes.processes import Processes
from wire.batches.records import decode_records
from wire.batches.transaction_records import TRANSACTIONS_TOPIC, decode_transaction_key, decode_transaction_value
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import OffsetQuery
from wire.client.requests.transaction_descriptions import describe_transaction
from wire.protocol.ids import READ_COMMITTED

pytestmark = pytest.mark.integration

FIND_COORDINATOR = 10
ANSWERS_MAX = 3
"""So often librdkafka asks for a coordinator."""
TOOL = -2


@pytest.fixture
async def sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect)
    await pair.link()
    await pair.create_topic("flights")
    pair.start_mirror()

    async def is_writable() -> bool:
        reply = await pair.describe("a")
        return bool(reply.partitions) and all(item.is_writable for item in reply.partitions)

    await eventually(is_writable)
    yield pair
    await pair.channels.close()


async def stable_end(bootstrap: str) -> int:
    """The last stable offset at the site that is asked."""
    async with KafkaClient(bootstrap, site_local=True) as client:
        (node,) = (await client.metadata(["flights"])).brokers
        asked = {("flights", 0): OffsetQuery(-1)}
        found = await client.list_offsets(node, asked, replica_id=TOOL, isolation_level=READ_COMMITTED)
        return found["flights", 0].offset


async def shows(bootstrap: str, wanted: list[bytes]) -> bool:
    """Whether a read-committed reader finds these: a commit is answered before its marker is
    written.
    """
    values = await asyncio.to_thread(read_values, bootstrap, "flights", 1)
    assert values[0] == wanted
    return True


def committed(bootstrap: str) -> None:
    """One transaction of two records; its marker follows."""
    producer = transactional_producer(bootstrap, "booking")
    producer.begin_transaction()
    producer.produce("flights", b"one")
    producer.produce("flights", b"two")
    producer.commit_transaction(WITHIN_S)


def left_open(bootstrap: str) -> None:
    """Leave a transaction of one record open."""
    other = transactional_producer(bootstrap, "left-open")
    other.begin_transaction()
    other.produce("flights", b"open")
    other.flush(WITHIN_S)


async def test_a_promoted_site_shows_what_was_committed_and_aborts_what_was_open(sites: LinkedSites) -> None:
    # one of the producers knows only the standby, which sends it to the active site's coordinator
    await asyncio.to_thread(committed, sites.b.bootstrap)

    async def is_seen_committed() -> bool:
        return await stable_end(sites.a.bootstrap) == len(("one", "two", "marker"))

    await eventually(is_seen_committed)
    await asyncio.to_thread(left_open, sites.a.bootstrap)
    end = (await sites.ends("a"))["flights", 0]

    async def has_caught_up() -> bool:
        return (await sites.ends("b")).get(("flights", 0)) == end

    await eventually(has_caught_up)
    assert await stable_end(sites.b.bootstrap) == end - 1  # before the open transaction's only record
    assert sites.mirror is not None
    sites.mirror.kill()
    sites.a.process.kill()
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=FailoverPolicy(settle_ms=200))
    assert report.is_done, report

    async def is_open_no_more() -> bool:
        return await stable_end(sites.b.bootstrap) > end

    await eventually(is_open_no_more)
    values = await asyncio.to_thread(read_values, sites.b.bootstrap, "flights", 1)
    assert values[0] == [b"one", b"two"]

    def goes_on() -> None:
        producer = transactional_producer(sites.b.bootstrap, "left-open")
        producer.begin_transaction()
        producer.produce("flights", b"three")
        producer.commit_transaction(WITHIN_S)

    await asyncio.to_thread(goes_on)
    await eventually(lambda: shows(sites.b.bootstrap, [b"one", b"two", b"three"]))


async def test_either_site_names_the_coordinator_of_a_new_group(
    sites: LinkedSites,
) -> None:
    """A site's view of the other one may be a moment old, and librdkafka's
    `send_offsets_to_transaction` hangs after three responses without a coordinator.
    """

    def coordinators() -> list[tuple[ErrorCode, int]]:
        found = []
        for port in (sites.b.client_port, sites.a.client_port):
            with RawClient(port) as client:
                for _ in range(ANSWERS_MAX):
                    answer = client.call(FIND_COORDINATOR, 2, {"key": "pipeline", "key_type": 0})
                    if not answer.error_code:
                        break
                found.append((answer.error_code, answer.node_id))
        return found

    assert await asyncio.to_thread(coordinators) == [(ErrorCode.none, 1)] * 2  # of site a


async def carried_epoch(bootstrap: str, transactional_id: str) -> int:
    """The producer epoch that a mirror has reported to the site, -1 without a report."""
    found = -1
    async with KafkaClient(bootstrap, site_local=True) as client:
        topic = (await client.metadata([TRANSACTIONS_TOPIC])).topics.get(TRANSACTIONS_TOPIC)
        for partition in () if topic is None else topic.partitions:
            fetched = await fetch_at_leader(client, (TRANSACTIONS_TOPIC, partition), 0, max_bytes=1 << 20)
            for record in decode_records(records_of(fetched)):
                assert record.key is not None
                assert record.value is not None
                value = decode_transaction_value(record.value)
                if value.is_carried and decode_transaction_key(record.key) == transactional_id:
                    found = value.producer_epoch
    return found


async def source_epoch(bootstrap: str, transactional_id: str) -> int:
    """The producer epoch as the coordinator itself says it."""
    async with KafkaClient(bootstrap, site_local=True) as client:
        connection = await client.connection(await client.transaction_coordinator(transactional_id))
        return (await describe_transaction(connection, transactional_id)).producer_epoch


def in_one_transaction(producer: Any, value: bytes) -> None:
    """Produce as applications do: abort a transaction that must be aborted, and try it again."""
    while True:
        try:
            producer.begin_transaction()
            producer.produce("flights", value)
            producer.commit_transaction(WITHIN_S)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WITHIN_S)
            continue
        return


async def test_a_transactional_producer_goes_on_after_the_promotion_and_one_that_was_fenced_stays_so(
    sites: LinkedSites,
) -> None:
    """Both instances live through it and know both sites; the open transaction of neither is ever
    committed.
    """
    both = f"{sites.a.bootstrap},{sites.b.bootstrap}"
    fenced = await asyncio.to_thread(transactional_producer, both, "booking")
    await asyncio.to_thread(in_one_transaction, fenced, b"one")
    fenced.begin_transaction()
    fenced.produce("flights", b"never")
    await asyncio.to_thread(fenced.flush, WITHIN_S)
    present = await asyncio.to_thread(transactional_producer, both, "booking")
    await asyncio.to_thread(in_one_transaction, present, b"two")
    present.begin_transaction()
    present.produce("flights", b"aborted")
    await asyncio.to_thread(present.flush, WITHIN_S)
    end = (await sites.ends("a"))["flights", 0]
    epoch = await source_epoch(sites.a.bootstrap, "booking")

    async def has_come() -> bool:
        if (await sites.ends("b")).get(("flights", 0)) != end:
            return False
        return await carried_epoch(sites.b.bootstrap, "booking") == epoch

    await eventually(has_come)
    assert sites.mirror is not None
    sites.mirror.kill()
    sites.a.process.kill()
    assert (await failover(LINK, to_site="b", agents=sites.agents, policy=FailoverPolicy(settle_ms=200))).is_done
    with pytest.raises(KafkaException) as refused:
        await asyncio.to_thread(fenced.commit_transaction, WITHIN_S)
    assert refused.value.args[0].fatal()
    with pytest.raises(KafkaException):
        await asyncio.to_thread(present.commit_transaction, WITHIN_S)
    await asyncio.to_thread(present.abort_transaction, WITHIN_S)
    await asyncio.to_thread(in_one_transaction, present, b"three")
    await eventually(lambda: shows(sites.b.bootstrap, [b"one", b"two", b"three"]))


class Pipeline:
    """Consume-transform-produce: each transaction writes a record and the group's next offset,
    until one fails or the test stops it.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.committed = 0
        self.is_stopped = False

    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        producer = transactional_producer(self._bootstrap, "pipeline")
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "pipeline"})
        metadata = consumer.consumer_group_metadata()
        try:
            while not self.is_stopped:
                producer.begin_transaction()
                producer.produce("flights", b"%d" % self.committed)
                producer.send_offsets_to_transaction(
                    [TopicPartition("flights", 0, self.committed + 1)], metadata, WITHIN_S
                )
                producer.commit_transaction(WITHIN_S)
                self.committed += 1
        except KafkaException:
            return
        finally:
            consumer.close()


async def test_a_planned_failover_keeps_every_transaction_that_was_acknowledged_with_its_offsets(
    sites: LinkedSites,
) -> None:
    """F1, OF-11."""
    pipeline = Pipeline(sites.a.bootstrap)
    # a thread of its own: the loop would wait without end at its own end for one that hangs in the
    # client
    running = threading.Thread(target=pipeline.run, name="pipeline", daemon=True)
    running.start()
    try:
        await eventually(lambda: pipeline.committed > 20)
        report = await failover(LINK, to_site="b", agents=sites.agents)
    finally:
        pipeline.is_stopped = True
        await eventually(lambda: not running.is_alive())
    assert report.is_done, report
    assert report.account is not None
    assert report.account.loses_nothing
    # the last one may have been decided without the producer hearing of it
    at_least, at_most = ([b"%d" % number for number in range(pipeline.committed + more)] for more in (0, 1))

    async def has_what_goes_together() -> bool:
        values = (await asyncio.to_thread(read_values, sites.b.bootstrap, "flights", 1))[0]
        assert values in (at_least, at_most)
        async with KafkaClient(sites.b.bootstrap) as client:
            assert (await client.committed("pipeline"))["flights", 0].offset == len(values)
        return True

    await eventually(has_what_goes_together)


async def test_a_group_of_the_newer_protocol_goes_on_at_the_promoted_site(sites: LinkedSites) -> None:
    from confluent_kafka import Consumer

    await asyncio.to_thread(librdkafka_produce, sites.a.bootstrap, "flights", [Record(value=b"before")] * 5)
    consumer = Consumer(
        {
            "bootstrap.servers": f"{sites.b.bootstrap},{sites.a.bootstrap}",
            "group.id": "board",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe(["flights"])
    read: list[tuple[int, bytes]] = []

    async def has_read(count: int) -> bool:
        message = await asyncio.to_thread(consumer.poll, 0.1)
        if message is not None and message.error() is None:
            read.append((message.offset() or 0, message.value() or b""))
        return len(read) >= count

    await eventually(lambda: has_read(5))
    await asyncio.to_thread(consumer.commit, asynchronous=False)

    async def offsets_are_there() -> bool:
        async with KafkaClient(sites.b.bootstrap, site_local=True) as client:
            found = (await client.committed("board")).get(("flights", 0))
            return found is not None and found.offset == 5

    await eventually(offsets_are_there)
    sites.a.process.kill()
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=FailoverPolicy(settle_ms=200))
    assert report.is_done, report
    await asyncio.to_thread(librdkafka_produce, sites.b.bootstrap, "flights", [Record(value=b"after")] * 3)
    wanted = [(offset, b"before") for offset in range(5)] + [(offset, b"after") for offset in range(5, 8)]

    async def has_read_all() -> bool:
        await has_read(len(wanted))
        return len(set(read)) >= len(wanted)

    await eventually(has_read_all)
    # once each and in order, but for records that were read just before the group found its new
    # coordinator, and not committed
    assert list(dict.fromkeys(read)) == wanted

    async def is_committed() -> bool:
        """After a heartbeat's response has asked the member to rejoin."""
        await has_read(8)
        try:
            await asyncio.to_thread(consumer.commit, asynchronous=False)
        except KafkaException:
            return False
        return True

    await eventually(is_committed)
    await asyncio.to_thread(consumer.close)
