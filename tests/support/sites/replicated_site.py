"""A site of three brokers for replication tests: real processes and ZooKeeper, replicas compared on
disk, faults by node.

The nodes are `SiteNode`s; each hosts a controller candidate. `ReplicatedSite` finds leaders and the
controller, waits for full in-sync replicas, and compares the logs of all replicas byte by byte once
nothing is written any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from tests.support.eventually import eventually_sync
from tests.support.internal_topics import internal_topic_copies
from tests.support.processes.processes import Processes
from tests.support.sites.site_network import HERE, Place
from tests.support.sites.site_node import SiteNode

NODES = (1001, 1002, 1003)
SETTLE_WITHIN_MS = 120_000
CALM = {"zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "6000"}
"""For tests of one leader: a machine that stops for seconds costs no broker its session and no
replica its place in sync.
"""
ASKED_MS = 1_500
"""librdkafka asks the broker that it used last, so it must give a connection up soon that leads to
a paused one.
"""


class ReplicatedSite:
    """Three nodes, ready."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        connect: str | Mapping[int, str],
        settings: Mapping[str, str] | None = None,
        *,
        log_directories: Sequence[str] = ("data",),
        places: Mapping[int, Place] | None = None,
    ) -> None:
        self._directory = directory
        given = {
            **internal_topic_copies(len(NODES)),
            "replica.lag.time.max.ms": "3000",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self.nodes = {
            node_id: SiteNode(
                processes,
                directory,
                connect if isinstance(connect, str) else connect[node_id],
                node_id,
                {"broker.rack": f"rack-{node_id}", **given},
                log_directories=log_directories,
                place=(places or {}).get(node_id, HERE),
            )
            for node_id in NODES
        }
        for node in self.nodes.values():
            node.wait_ready()
        self.admin = _admin(self.bootstrap)
        self._askers = [_admin(node.bootstrap, {"socket.timeout.ms": ASKED_MS}) for node in self.nodes.values()]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """A topic with three replicas, all in sync; tried again while a broker has lost its session
        for a moment.
        """
        named = {name.replace("_", "."): value for name, value in configs.items()}

        def is_made() -> bool:
            try:
                self.admin.create_topics([NewTopic(topic, partitions, 3, config=named)])[topic].result(120)
            except KafkaException as refusal:
                code = refusal.args[0].code()
                if code in (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.COORDINATOR_NOT_AVAILABLE):
                    return False
                if code != KafkaError.TOPIC_ALREADY_EXISTS:  # by a try whose answer was lost
                    raise
            return True

        eventually_sync(is_made, SETTLE_WITHIN_MS)
        self.wait_in_sync(topic)

    def leaders(self, topic: str) -> dict[int, int]:
        """Leader by partition as metadata has it."""
        found = self._metadata(topic).topics[topic]
        return {index: partition.leader for index, partition in found.partitions.items()}

    def in_sync(self, topic: str) -> dict[int, set[int]]:
        """In-sync replicas by partition as metadata has them."""
        found = self._metadata(topic).topics[topic]
        return {index: set(partition.isrs) for index, partition in found.partitions.items()}

    def replicas(self, topic: str) -> list[list[int]]:
        """Replicas of each partition as metadata has them."""
        found = self._metadata(topic).topics[topic].partitions
        return [list(found[index].replicas) for index in sorted(found)]

    def wait_in_sync(self, topic: str, nodes: tuple[int, ...] = NODES) -> None:
        """Wait until exactly these nodes are in sync in every partition."""
        eventually_sync(
            lambda: all(members == set(nodes) for members in self.in_sync(topic).values()), SETTLE_WITHIN_MS
        )

    def wait_whole(self, topic: str, within_ms: float = SETTLE_WITHIN_MS) -> None:
        """Wait until every node says of every partition that it has a leader and all replicas in
        sync.
        """

        def is_whole(asker: AdminClient) -> bool:
            try:
                found = asker.list_topics(topic, timeout=1).topics[topic].partitions.values()
            except KafkaException:
                return False
            return bool(found) and all(
                set(partition.isrs) == set(NODES) and partition.leader in NODES for partition in found
            )

        eventually_sync(lambda: all(is_whole(asker) for asker in self._askers), within_ms)

    def kill_leader(self, topic: str, partition: int, within_ms: float = SETTLE_WITHIN_MS) -> None:
        """Kill the leader of the partition, wait for a successor, and start the killed one again
        until all are in sync.
        """
        killed = self.leaders(topic)[partition]
        self.nodes[killed].process.kill()
        eventually_sync(lambda: self.leaders(topic)[partition] not in (killed, -1), within_ms)
        self.nodes[killed].restart()
        self.wait_in_sync(topic)

    def controller(self) -> int:
        """Node id of the active controller as metadata has it."""
        return int(self._metadata(None).controller_id)

    def _metadata(self, topic: str | None) -> ClusterMetadata:
        """The metadata of any broker that answers: a paused one does not."""

        def ask() -> ClusterMetadata | None:
            for asker in self._askers:
                try:
                    found = asker.list_topics(topic, timeout=1)
                except KafkaException:
                    continue
                if topic is None or found.topics[topic].partitions:
                    return found  # a broker that does not know a topic yet knows no partitions of it
            return None

        return eventually_sync(ask, SETTLE_WITHIN_MS)

    def directory_of(self, node_id: int, topic: str, partition: int) -> Path:
        """The directory of a partition at a node."""
        return self._directory / f"node-{node_id}" / "data" / f"{topic}-{partition}"

    def contents(self, topic: str, partition: int) -> dict[int, bytes]:
        """Bytes of the partition's segments, in order, by node."""
        found = {}
        for node_id in self.nodes:
            directory = self.directory_of(node_id, topic, partition)
            found[node_id] = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return found

    def wait_equal(self, topic: str, partitions: int) -> None:
        """Wait until the replicas of every partition are the same bytes."""

        def are_equal() -> bool:
            for partition in range(partitions):
                contents = self.contents(topic, partition)
                sizes = {node: len(content) for node, content in contents.items()}
                assert len(set(contents.values())) == 1, f"replicas of {topic}-{partition} differ: {sizes}"
            return True

        eventually_sync(are_equal, SETTLE_WITHIN_MS)


def _admin(bootstrap: str, settings: Mapping[str, int] | None = None) -> AdminClient:
    usual: dict[str, str | int | float] = {
        "bootstrap.servers": bootstrap,
        "topic.metadata.refresh.interval.ms": 200,
        "log_level": 2,
    }
    return AdminClient({**usual, **(settings or {})})
