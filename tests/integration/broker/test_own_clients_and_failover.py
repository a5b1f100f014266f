"""Our clients while the leader and the group's coordinator are killed at a site of three brokers.

Promised: with acks=all and idempotence no record is lost or written twice; a group continues at its
committed offsets; records are delivered in order; no error reaches the application within its time
limits.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clients.consumer.consumer import Consumer
from clients.consumer.consumer_options import ConsumerOptions
from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from tests.support.eventually import eventually
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import ReplicatedSite
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

PARTITIONS = 3
RECORDS = 3000


async def test_a_leader_and_a_coordinator_that_are_killed_cost_nothing(
    processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    site = await asyncio.to_thread(ReplicatedSite, processes, tmp_path, zookeeper_connect)
    await asyncio.to_thread(lambda: site.create("t", PARTITIONS, min_insync_replicas="2"))
    reader = ReaderOptions(policy=ResetPolicy.EARLIEST, max_wait_ms=100)
    options = ConsumerOptions(
        group_id="g", heartbeat_interval_ms=200, session_timeout_ms=20_000, is_auto_commit=False, reader=reader
    )
    found: list[tuple[int, int]] = []
    async with Consumer(lambda: KafkaClient(site.bootstrap), options) as consumer:
        consumer.subscribe(["t"])

        async def read() -> None:
            while True:
                for chunk in await consumer.poll(200):
                    found.extend((chunk.place[1], int(record.value or b"")) for record in consumer.opened(chunk))

        reading = asyncio.create_task(read())
        await eventually(lambda: len(consumer.assignment) == PARTITIONS)
        async with Producer(KafkaClient(site.bootstrap), ProducerOptions(batch_records_max=20)) as producer:
            for number in range(RECORDS):
                await producer.send(ProducerRecord(topic="t", value=b"%d" % number, partition=number % PARTITIONS))
                if number == RECORDS // 3:
                    async with KafkaClient(site.bootstrap) as client:
                        coordinator = await client.coordinator("g")
                    await producer.flush()
                    site.nodes[coordinator].process.kill()
        assert (producer.counts.delivered, producer.counts.failed) == (RECORDS, 0)
        await eventually(lambda: len(found) >= RECORDS or reading.done())
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await consumer.commit()
    for partition in range(PARTITIONS):
        assert [value for index, value in found if index == partition] == list(range(partition, RECORDS, PARTITIONS))
    async with KafkaClient(site.bootstrap) as client:
        committed = await client.committed("g")
    assert sum(offset.offset for offset in committed.values()) == RECORDS
