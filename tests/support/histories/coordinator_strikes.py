"""A coordinator's broker struck down at an exact moment: kill -9, or SIGSTOP until another one
leads and then SIGCONT.

A test can hold a request in flight if the coordinator answers it only after replication:
`replication_held` pauses every other broker, `wait_written` waits until the coordinator's own log
has the record. So a test knows that the request was taken and cannot have been answered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.metadata.core.cluster_image import group_partition
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.replicated_site import ReplicatedSite

WITHIN_MS = 120_000
ASK_S = 2.0
INTERNAL_PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    # balancing would move the coordinator between the choice of the struck broker and the strike
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "zookeeper.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "60000",
}


class Blow(enum.Enum):
    """The fault of the broker."""

    KILL = "kill"
    PAUSE = "pause"


class Strike:
    """The broker that coordinates a group or a transactional id (`key` in the internal `topic`),
    struck once and healed once.
    """

    def __init__(self, site: ReplicatedSite, struck: set[int], blow: Blow, *, topic: str, key: str) -> None:
        self._site, self._struck, self._blow = site, struck, blow
        self._topic, self._partition = topic, group_partition(key, INTERNAL_PARTITIONS)
        # the broker that is asked may learn of a new internal topic a moment after its coordinator
        self.node_id = eventually_sync(lambda: max(site.leaders(topic).get(self._partition, 0), 0), WITHIN_MS)

    @contextmanager
    def replication_held(self) -> Iterator[None]:
        """Replication from the coordinator stops meanwhile; for a short time, because sessions in
        ZooKeeper continue.
        """
        held = self._site.nodes.keys() - self._struck - {self.node_id}
        for node_id in held:
            self._site.nodes[node_id].process.pause()
        self._struck |= held
        try:
            yield
        finally:
            self._struck -= held
            for node_id in held:
                self._site.nodes[node_id].process.resume()

    def written_bytes(self) -> int:
        """The size of the coordinator's own log, in bytes."""
        directory = self._site.directory_of(self.node_id, self._topic, self._partition)
        return sum(path.stat().st_size for path in directory.glob("*.log"))

    def wait_written(self, beyond_bytes: int) -> None:
        """Wait until the log is longer than that."""
        eventually_sync(lambda: self.written_bytes() > beyond_bytes, WITHIN_MS)

    def hit(self) -> None:
        """Kill it, or stop it where it is."""
        process = self._site.nodes[self.node_id].process
        self._struck.add(self.node_id)
        if self._blow is Blow.KILL:
            process.kill()
        else:
            process.pause()

    def in_flight(self, send: Callable[[], None]) -> None:
        """Hit the coordinator while only its own log has the record."""
        with self.replication_held():
            before = self.written_bytes()
            send()
            self.wait_written(before)
            self.hit()
        self.wait_succeeded()

    def wait_succeeded(self) -> None:
        """Wait until every broker that is left says that another one leads."""
        self._wait_known(self._site.nodes.keys() - self._struck)

    def _wait_known(self, nodes: Collection[int]) -> None:
        gone = self._struck | {-1}
        eventually_sync(lambda: all(self._leader_at(node_id) not in gone for node_id in nodes), WITHIN_MS)

    def _leader_at(self, node_id: int) -> int:
        try:
            with RawClient(self._site.nodes[node_id].port, timeout_s=ASK_S) as client:
                (topic,) = client.metadata(self._topic).topics
        except OSError:
            return -1
        found = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        return int(found.get(self._partition, -1))

    def heal(self) -> None:
        """Resume or restart it, and wait until it knows that it has ceased to coordinate and all
        replicas are in sync.
        """
        node = self._site.nodes[self.node_id]
        if self._blow is Blow.KILL:
            node.restart()
        else:
            node.process.resume()
            self._wait_known([self.node_id])
        self._struck.discard(self.node_id)
        self._site.wait_whole(self._topic)


@contextmanager
def lasting_site(server: ZooKeeperProcess, directory: Path, settings: Mapping[str, str]) -> Iterator[ReplicatedSite]:
    """One site for many strikes: to start it takes longer than most of them."""
    processes = Processes()
    try:
        yield ReplicatedSite(processes, directory, server.new_chroot("strikes"), {**SETTINGS, **settings})
    finally:
        processes.end_all()


def make_whole(site: ReplicatedSite, struck: set[int]) -> None:
    """Undo the faults of an earlier test: every broker runs, and none is paused."""
    for node in site.nodes.values():
        if node.process.is_running:
            node.process.resume()
        else:
            node.restart()
    struck.clear()
