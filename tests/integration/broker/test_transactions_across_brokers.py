"""Transactions whose coordinator, partitions and group are at different brokers of a site:
admission and markers go between brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.transactional_clients import WITHIN_S, flat, read_values, transactional_producer
from tests.support.eventually import eventually
from tests.support.sites.site_broker import SiteBroker
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.integration

SETTINGS = {"transaction_state_log_num_partitions": "4"}


@pytest.fixture
async def brokers(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[list[SiteBroker]]:
    running = [
        SiteBroker(zookeeper_connect, tmp_path / f"log-{node_id}", node_id=node_id, **SETTINGS) for node_id in (1, 2)
    ]
    for broker in running:
        await broker.start()
    async with KafkaClient(running[0].bootstrap) as client:
        (outcome,) = await client.create_topics([NewTopic(name="t", partition_count=2, replication_factor=1)])
        assert not outcome.error_code

        async def is_spread() -> bool:
            found = await client.metadata(["t"])
            return {found.leader_of("t", partition) for partition in range(2)} == {1, 2}

        await eventually(is_spread)
    yield running
    for broker in reversed(running):
        await broker.stop()


def commit_and_abort(bootstrap: str, transactional_id: str) -> None:
    producer = transactional_producer(bootstrap, transactional_id)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("t", b"%s %d" % (transactional_id.encode(), number), partition=partition)
        producer.flush(WITHIN_S)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WITHIN_S)


async def test_markers_reach_the_partitions_of_other_brokers(brokers: list[SiteBroker]) -> None:
    names = [f"id-{number}" for number in range(4)]
    for name in names:
        await asyncio.to_thread(commit_and_abort, brokers[0].bootstrap, name)
    values = await asyncio.to_thread(read_values, brokers[1].bootstrap, "t", 2)
    wanted = sorted(b"%s %d" % (name.encode(), number) for name in names for number in (0, 2, 4))
    assert sorted(values[0]) == sorted(values[1]) == wanted
    coordinators = {
        transaction.transactional_id
        for broker in brokers
        for transaction in broker.broker.coordination.transactions.list_transactions()
    }
    assert coordinators == set(names)
    assert all(broker.broker.coordination.transactions.count for broker in brokers)


async def test_leaders_make_partitions_take_part_at_another_brokers_coordinator(
    brokers: list[SiteBroker], kafka_programs: KafkaPrograms
) -> None:
    """Java's producer of KIP-890's protocol names no partition itself."""
    for name in ("x", "y", "z"):
        await asyncio.to_thread(
            kafka_programs.run,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", brokers[0].bootstrap, "--topic", "t", "--num-records", "500"),
            *("--record-size", "10", "--throughput", "-1", "--transactional-id", name),
            *("--transaction-duration-ms", "20"),
        )
    values = await asyncio.to_thread(read_values, brokers[0].bootstrap, "t", 2)
    assert len(flat(values)) == 1500
