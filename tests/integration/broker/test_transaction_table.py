"""Our transaction coordinator answers as Apache Kafka's does, in every state and to every request
of `tests/support/histories/transaction_table.py`.

`tests/golden/transaction_table.txt` has the answers of both; a test here asks a real Apache Kafka
whether they still are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.apache_kafka import ApacheKafkaServer
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.histories.transaction_table import TransactionTable, make_coordinators, make_topics
from tests.support.processes.apache_kafka import FEW_PARTITIONS, READY_WITHIN_MS
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes
from tests.support.sites.site_broker import SiteBroker

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parents[2] / "golden" / "transaction_table.txt"
OURS = "    ours: "
LEADERS_STAY = {"broker.session.timeout.ms": "600000"}
"""The broker that is killed stays the leader of its partitions: Apache Kafka ends transactions over
partitions without a leader.
"""


def golden(*, is_ours: bool) -> list[str]:
    """The lines of the table, of one of the two sides."""
    lines: list[str] = []
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        if line.startswith(OURS):
            if is_ours:
                request, _, _ = lines.pop().partition(": ")
                lines.append(f"{request}: {line.removeprefix(OURS)}")
        elif line and not line.startswith("# "):
            lines.append(line)
    return lines


def answered(port: int) -> list[str]:
    return [line for line in TransactionTable(port).text().splitlines() if line]


@pytest.fixture
async def our_port(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[int]:
    """The first broker of a site whose second one has been stopped."""
    settings = {"transaction_state_log_num_partitions": "4"}
    first, second = (
        SiteBroker(zookeeper_connect, tmp_path / f"log-{node_id}", node_id=node_id, **settings) for node_id in (1, 2)
    )
    await first.start()
    port = first.broker.ports["CLIENT"]
    await asyncio.to_thread(make_coordinators, port)
    await second.start()
    await asyncio.to_thread(make_topics, port, own=1, held=2)
    await second.stop()
    yield port
    await first.stop()


@pytest.fixture
def kafka_port(processes: Processes, kafka_programs: KafkaPrograms, tmp_path: Path) -> int:
    """The port of Apache Kafka."""
    port, controller_port, other_port = free_ports(3)
    first = ApacheKafkaServer(
        name="first",
        directory=tmp_path / "first",
        port=port,
        controller_port=controller_port,
        settings={**FEW_PARTITIONS, **LEADERS_STAY},
    )
    second = ApacheKafkaServer(
        name="second",
        directory=tmp_path / "second",
        port=other_port,
        controller_port=controller_port,
        node_id=2,
        voters={1: controller_port},
        settings={**FEW_PARTITIONS, "process.roles": "broker", "listeners": f"PLAINTEXT://{LOOPBACK}:{other_port}"},
    )
    for server in (first, second):
        server.format()
    processes.run(first.child()).wait_ready(first.is_serving, READY_WITHIN_MS)
    make_coordinators(port)
    stopped = processes.run(second.child())
    stopped.wait_ready(second.is_serving, READY_WITHIN_MS)
    make_topics(port, own=1, held=2)
    stopped.kill()
    return port


async def test_our_coordinator_answers_as_the_table_says(our_port: int) -> None:
    assert await asyncio.to_thread(answered, our_port) == golden(is_ours=True)


@pytest.mark.long
def test_apache_kafkas_coordinator_answers_as_the_table_says(kafka_port: int) -> None:
    assert answered(kafka_port) == golden(is_ours=False)
