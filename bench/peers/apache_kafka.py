"""The peer's side: Apache Kafka nodes in KRaft mode, each with broker and controller in one
process, with the heap and flags of Kafka's own launcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.measuring.figures import Side
from bench.peers.systems import BROKER_SETTINGS, MeasuredBroker, MeasuredSite, ended_with_the_block, running, wait_until
from deploy.apache_kafka import SERVER_JVM, ApacheKafkaServer
from deploy.ports import LOOPBACK, free_ports

HEAP = ("-Xms1g", "-Xmx1g")
READY_WITHIN_S = 90


def server(directory: Path, *, name: str = "kafka", settings: Mapping[str, str] | None = None) -> ApacheKafkaServer:
    """A node with free ports, formatted, not started."""
    port, controller_port = free_ports(2)
    node = ApacheKafkaServer(
        name=name,
        directory=directory,
        port=port,
        controller_port=controller_port,
        jvm=(*HEAP, *SERVER_JVM),
        settings={**BROKER_SETTINGS, **(settings or {})},
    )
    node.format()
    return node


@contextmanager
def lone_broker(
    directory: Path, *, name: str = "kafka", settings: Mapping[str, str] | None = None
) -> Iterator[MeasuredBroker]:
    """One broker in a fresh directory, ended with the block."""
    node = server(directory, name=name, settings=settings)
    with running(node.child(), node.is_serving, within_s=READY_WITHIN_S):
        yield MeasuredBroker(side=Side.PEER, bootstrap_servers=node.bootstrap_servers, child=node.child())


def cluster_nodes(
    directory: Path, *, count: int = 3, settings: Mapping[str, str] | None = None
) -> list[ApacheKafkaServer]:
    """Nodes 1 to `count` of one cluster, formatted, not started; `settings` override those of every
    measured broker.
    """
    ports = free_ports(2 * count)
    voters = {node_id: ports[count + node_id - 1] for node_id in range(1, count + 1)}
    nodes = [
        ApacheKafkaServer(
            name=f"kafka-{node_id}",
            directory=directory / f"kafka-{node_id}",
            port=ports[node_id - 1],
            controller_port=controller_port,
            node_id=node_id,
            voters=voters,
            jvm=(*HEAP, *SERVER_JVM),
            settings={**BROKER_SETTINGS, **(settings or {})},
        )
        for node_id, controller_port in voters.items()
    ]
    for node in nodes:
        node.format()
    return nodes


@contextmanager
def cluster(directory: Path, *, count: int = 3, settings: Mapping[str, str] | None = None) -> Iterator[MeasuredSite]:
    """A cluster in a fresh directory whose nodes all serve and know each other, ended with the
    block.
    """
    nodes = cluster_nodes(directory, count=count, settings=settings)
    site = MeasuredSite(
        side=Side.PEER,
        addresses={node.node_id: f"{LOOPBACK}:{node.port}" for node in nodes},
        children={node.node_id: node.child() for node in nodes},
    )
    with ended_with_the_block(site):
        for child in site.children.values():
            child.start()
        for node in nodes:
            wait_until(node.is_serving, within_s=READY_WITHIN_S, what=node.name, child=site.children[node.node_id])
        site.wait_complete(within_s=READY_WITHIN_S)
        yield site
