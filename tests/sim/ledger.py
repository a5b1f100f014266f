"""The named invariants of the simulation, checked against each event.

The ledger gets every append, every high watermark, every image, every commit in ZooKeeper and every
answer to clients at once, so it finds a violation in the step that causes it. README.md has the
list of invariants.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from broker.metadata.core.cluster_image import ClusterImage
from runtime.zookeeper.nodes import CheckNode, DeleteNode, TransactionStep
from tests.sim.disk import Disk, MemoryLog
from tests.sim.stored_logs import Batch, StoredLog
from tests.sim.world import World
from tests.sim.zookeeper_tree import Node, Tree
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import decode_controller_epoch
from wire.znodes.topic_znodes import decode_partition_state, decode_topic

HEADER_BYTES = 61
"""Size of a record batch's header; the bytes after it are the same at every replica."""

Key = tuple[bytes, int]
"""Topic id and partition."""


def body_of(content: bytes) -> bytes:
    """A batch's records."""
    return bytes(content[HEADER_BYTES:])


@dataclass(slots=True)
class Committed:
    """The batches below the high watermark of some replica, by base offset."""

    bodies: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    end: int = 0


class Ledger:
    """The invariants of one site."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disks: dict[int, Disk] = {}
        self.committed: dict[Key, Committed] = defaultdict(Committed)
        self.acknowledged: dict[Key, dict[int, bytes]] = defaultdict(dict)
        self.read: dict[Key, dict[int, bytes]] = defaultdict(dict)
        self.leaders: dict[tuple[bytes, int, int], int] = {}
        self.excused: dict[int, set[tuple[str, int]]] = defaultdict(set)
        """Node to partitions whose unflushed end it may have lost, until it has registered anew and
        has been outside the in-sync replicas.
        """
        self._registered_at: dict[int, int] = {}
        """Where a node lost power: the zxid of its registration then. The leader may take the node
        back on a fetch that it sent before.
        """
        self.waived: set[Key] = set()
        """Partitions led by a replica that has lost power, for want of another in sync: what it had
        not flushed is not promised.
        """
        self.must_flush = False
        self.insync_replicas_min = 1
        world.ensemble.on_commit = self._commit

    def of_node(self, node: int) -> NodeLedger:
        """The observer that gets the reports of one node's logs."""
        return NodeLedger(self, node)

    # --- logs

    def high_watermark_moved(self, node: int, log: MemoryLog, former: int) -> None:
        """Everything below it is as it is at any other replica."""
        assert log.topic_id is not None
        if (log.topic_id, log.partition) in self.waived:
            return
        known = self.committed[log.topic_id, log.partition]
        reached = log.high_watermark
        for batch in reversed(log.stored.batches):
            if batch.base_offset >= reached:
                continue
            if batch.last_offset < former:
                break
            found = known.bodies.setdefault(batch.base_offset, (batch.epoch, body_of(batch.content)))
            if found != (batch.epoch, body_of(batch.content)):
                self._world.violate(
                    "logs-agree-below-high-watermark",
                    f"{log.topic}-{log.partition} at offset {batch.base_offset}: broker {node} has a batch of epoch {batch.epoch}, "
                    f"another one of epoch {found[0]} was committed",
                )
        if reached > known.end:
            known.end = reached
            self._check_is_at_enough(log, reached)

    def _check_is_at_enough(self, log: MemoryLog, reached: int) -> None:
        """When a batch becomes visible for the first time, as many replicas have it as acks=all
        demands (KIP-966).
        """
        assert log.topic_id is not None
        topic = self._world.ensemble.tree.nodes.get(znodes.topic_path(log.topic))
        if topic is None:
            return
        replicas = decode_topic(log.topic, topic.value).partitions.get(log.partition, ())
        holders = []
        for node in replicas:
            stored = self._stored(node, log.topic, log.partition, log.topic_id)
            if (stored is not None and stored.end >= reached) or (log.topic, log.partition) in self.excused[node]:
                holders.append(node)
        if len(holders) < min(self.insync_replicas_min, len(replicas)):
            self._world.violate(
                "committed-is-at-enough-replicas",
                f"{log.topic}-{log.partition} is committed up to {reached} and only brokers {holders} of {replicas} have that",
            )

    def leader_appends(self, node: int, log: MemoryLog, leader_epoch: int) -> None:
        """Only the leader that the controller has stored for the epoch may append."""
        assert log.topic_id is not None
        leader = self.leaders.get((log.topic_id, log.partition, leader_epoch))
        if leader != node:
            self._world.violate(
                "one-leader-per-epoch",
                f"broker {node} appends to {log.topic}-{log.partition} in epoch {leader_epoch}, whose leader is {leader}",
            )

    def lost_power(self, node: int) -> None:
        """Unless everything is flushed before it is acknowledged, this node may lack records until
        it has left the in-sync replicas.
        """
        broker = self._world.ensemble.tree.nodes.get(znodes.broker_path(node))
        self._registered_at[node] = 0 if broker is None else broker.czxid
        if not self.must_flush:
            self.excused[node] |= {(log.topic, log.partition) for log in self.disks[node].logs.values()}

    def image_taken(self, node: int, before: ClusterImage, after: ClusterImage) -> None:
        """A broker never goes back to an older controller."""
        if after.controller_epoch < before.controller_epoch:
            self._world.violate(
                "controllers-are-fenced",
                f"broker {node} goes from controller epoch {before.controller_epoch} back to {after.controller_epoch}",
            )

    # --- clients

    def acknowledge(self, key: Key, base_offset: int, body: bytes) -> None:
        """A producer with acks=all got the acknowledgement of its records at this offset."""
        found = self.acknowledged[key].setdefault(base_offset, body)
        if found != body and key not in self.waived:
            self._world.violate(
                "acknowledged-records-stay",
                f"two batches were acknowledged at offset {base_offset} of partition {key[1]}",
            )

    def consume(self, key: Key, base_offset: int, body: bytes) -> None:
        """A consumer has read this."""
        found = self.read[key].setdefault(base_offset, body)
        if found != body and key not in self.waived:
            self._world.violate(
                "read-records-never-change", f"offset {base_offset} of partition {key[1]} reads differently now"
            )

    # --- what is stored

    def _commit(self, tree: Tree, step: TransactionStep) -> None:
        if isinstance(step, CheckNode | DeleteNode) or not step.path.endswith("/state"):
            return
        _, _, _, topic, _, text, _ = step.path.split("/")
        index = int(text)
        state = decode_partition_state(topic, index, step.value)
        controller_epoch = decode_controller_epoch(tree.nodes[znodes.CONTROLLER_EPOCH].value)
        if state.controller_epoch != controller_epoch:
            self._world.violate(
                "controllers-are-fenced",
                f"controller {state.controller_epoch} writes {topic}-{index} while controller {controller_epoch} is elected",
            )
        former = tree.nodes.get(step.path)
        if former is not None:
            before = decode_partition_state(topic, index, former.value)
            if before.leader_epoch > state.leader_epoch:
                self._world.violate("epochs-grow", f"{topic}-{index} goes from {before} to {state}")
        topic_id = decode_topic(topic, tree.nodes[znodes.topic_path(topic)].value).topic_id
        if state.leader >= 0:
            known = self.leaders.setdefault((topic_id, index, state.leader_epoch), state.leader)
            if known != state.leader:
                self._world.violate(
                    "one-leader-per-epoch",
                    f"{topic}-{index} has leaders {known} and {state.leader} in epoch {state.leader_epoch}",
                )
        if former is not None and (topic, index) in self.excused[state.leader]:
            self._waive(tree, topic, index, (topic_id, index), former)
        former_isr = decode_partition_state(topic, index, former.value).isr if former is not None else ()
        self._end_excuses(tree, topic, index, set(state.isr) & set(former_isr))
        self._check_in_sync(topic, index, (topic_id, index), state.isr)

    def _waive(self, tree: Tree, topic: str, index: int, key: Key, former: Node) -> None:
        """A replica that has lost power may lead when no other one in sync has been there all the
        time.
        """
        for node in decode_partition_state(topic, index, former.value).isr:
            broker = tree.nodes.get(znodes.broker_path(node))
            if (topic, index) not in self.excused[node] and broker is not None and broker.czxid <= former.mzxid:
                return
        self._world.tell(
            f"{topic}-{index} is led by a replica that has lost power, for want of another: nothing is promised"
        )
        self.waived.add(key)

    def _end_excuses(self, tree: Tree, topic: str, index: int, in_sync_throughout: set[int]) -> None:
        for node, excused in self.excused.items():
            broker = tree.nodes.get(znodes.broker_path(node))
            is_new = broker is not None and broker.czxid != self._registered_at.get(node)
            if is_new and node not in in_sync_throughout:
                excused.discard((topic, index))

    def _check_in_sync(self, topic: str, index: int, key: Key, isr: tuple[int, ...]) -> None:
        committed = self.committed.get(key)
        if committed is None or key in self.waived:
            return
        for node in isr:
            if (topic, index) not in self.excused[node]:
                self._check_has(topic, index, node, committed, self._stored(node, topic, index, key[0]))

    def _stored(self, node: int, topic: str, index: int, topic_id: bytes) -> StoredLog | None:
        for (name, partition), stored in self.disks[node].logs.items():
            if (name, partition) == (topic, index) and stored.topic_id == topic_id:
                return stored
        return None

    def _check_has(self, topic: str, index: int, node: int, committed: Committed, stored: StoredLog | None) -> None:
        end = 0 if stored is None else stored.end
        last: Batch | None = None
        if stored is not None:
            last = next((batch for batch in reversed(stored.batches) if batch.last_offset < committed.end), None)
        expected = committed.bodies.get(last.base_offset) if last is not None else None
        is_same = last is None or expected is None or expected == (last.epoch, body_of(last.content))
        if end < committed.end or not is_same:
            self._world.violate(
                "in-sync-replicas-are-complete",
                f"{topic}-{index}: broker {node} is in sync and has {end} records, {committed.end} are committed",
            )


class NodeLedger:
    """The ledger as the logs of one node know it."""

    def __init__(self, ledger: Ledger, node: int) -> None:
        self._ledger = ledger
        self._node = node

    def high_watermark_moved(self, log: MemoryLog, former: int) -> None:
        self._ledger.high_watermark_moved(self._node, log, former)

    def truncated(self, log: MemoryLog) -> None:
        """Records that it has lost are detected when the log is read."""

    def leader_appends(self, log: MemoryLog, leader_epoch: int) -> None:
        self._ledger.leader_appends(self._node, log, leader_epoch)
