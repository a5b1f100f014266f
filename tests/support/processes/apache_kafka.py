"""A real Apache Kafka broker (KRaft, one node) for tests that compare, or that check the test
clients themselves.

Takes a few seconds to start and 0.4 GB; comes by `make setup-java`, so take the fixture
`apache_kafka`, which skips where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.apache_kafka import ApacheKafkaServer
from tests.support.pairs.many_lines import with_lines
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

FEW_PARTITIONS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
SOON_COMPACTED = {"log.cleaner.backoff.ms": "500"}
READY_WITHIN_MS = 120_000


class ApacheKafka:
    """The broker's address and process."""

    def __init__(self, bootstrap_servers: str, process: RunningProcess) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.process = process


def start_apache_kafka(processes: Processes, directory: Path, settings: Mapping[str, str] | None = None) -> ApacheKafka:
    """A broker that serves, with its data under `directory`."""
    port, controller_port = free_ports(2)
    return _start(processes, directory, port, controller_port, {**FEW_PARTITIONS, **SOON_COMPACTED, **(settings or {})})


def start_proxied_kafka(
    processes: Processes, directory: Path, toxiproxy: Toxiproxy, settings: Mapping[str, str] | None = None
) -> tuple[ApacheKafka, Proxy]:
    """A broker that all its clients reach through a proxy, by its advertised address."""
    port, controller_port = free_ports(2)
    proxy = toxiproxy.create(directory.name, f"{LOOPBACK}:{port}")
    advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    kafka = _start(processes, directory, port, controller_port, {**FEW_PARTITIONS, **advertised, **(settings or {})})
    return ApacheKafka(proxy.address, kafka.process), proxy


def start_kafka_with_lines(
    processes: Processes, directory: Path, toxiproxy: Toxiproxy, count: int
) -> tuple[ApacheKafka, list[Proxy]]:
    """Start a broker with one listener without a proxy, and with so many lines, each with a proxy
    of its own.
    """
    port, controller_port = free_ports(2)
    plain = ApacheKafkaServer(name="plain", directory=directory, port=port, controller_port=controller_port)
    settings, lines = with_lines(plain.properties(), toxiproxy, directory.name, count)
    settings |= {**FEW_PARTITIONS, "inter.broker.listener.name": "PLAINTEXT"}
    return _start(processes, directory, port, controller_port, settings), lines


def _start(
    processes: Processes, directory: Path, port: int, controller_port: int, settings: Mapping[str, str]
) -> ApacheKafka:
    server = ApacheKafkaServer(
        name="kafka", directory=directory, port=port, controller_port=controller_port, settings=settings
    )
    server.format()
    process = processes.run(server.child())
    process.wait_ready(server.is_serving, READY_WITHIN_MS)
    return ApacheKafka(server.bootstrap_servers, process)
