"""A real Apache Kafka broker (KRaft, one node) for tests that compare, or that check the test clients themselves.

Takes a few seconds to start and 0.4 GB; comes by `make setup-java`, so take the fixture `apache_kafka`, which skips where it is not.
"""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.java_clients import KafkaPrograms
from tests.support.ports import LOOPBACK, free_ports
from tests.support.processes import Processes, RunningProcess

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STORAGE_TOOL = "kafka.tools.StorageTool"
BROKER = "kafka.Kafka"
READY_WITHIN_MS = 60_000


class ApacheKafka:
    """The broker's address and process."""

    def __init__(self, bootstrap_servers: str, process: RunningProcess) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.process = process


def start_apache_kafka(processes: Processes, programs: KafkaPrograms, directory: Path) -> ApacheKafka:
    """A broker that serves, with its data under `directory`."""
    client_port, controller_port = free_ports(2)
    configuration = directory / "server.properties"
    configuration.write_text(_configuration(directory, client_port, controller_port), encoding="utf-8")
    programs.run(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(configuration))
    process = processes.run_command("kafka", programs.command(BROKER, str(configuration)), directory)
    process.wait_ready(lambda: _accepts(client_port), READY_WITHIN_MS)
    return ApacheKafka(f"{LOOPBACK}:{client_port}", process)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=0.3).close()
    except OSError:
        return False
    return True


def _configuration(directory: Path, client_port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{client_port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{client_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
