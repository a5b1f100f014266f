"""The peer's side: one Apache Kafka node, KRaft, broker and controller in one process, with the heap and flags of its own launcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Side
from bench.systems import BROKER_SETTINGS, MeasuredBroker, running
from deploy.apache_kafka import SERVER_JVM, ApacheKafkaServer
from deploy.ports import free_ports

HEAP = ("-Xms1g", "-Xmx1g")
READY_WITHIN_S = 90


def server(directory: Path, *, name: str = "kafka") -> ApacheKafkaServer:
    """A node with free ports, formatted, not started."""
    port, controller_port = free_ports(2)
    node = ApacheKafkaServer(
        name=name,
        directory=directory,
        port=port,
        controller_port=controller_port,
        jvm=(*HEAP, *SERVER_JVM),
        settings=BROKER_SETTINGS,
    )
    node.format()
    return node


@contextmanager
def lone_broker(directory: Path, *, name: str = "kafka") -> Iterator[MeasuredBroker]:
    """One broker in a fresh directory, ended with the block."""
    node = server(directory, name=name)
    with running(node.child(), node.is_serving, within_s=READY_WITHIN_S):
        yield MeasuredBroker(side=Side.PEER, bootstrap_servers=node.bootstrap_servers, child=node.child())
