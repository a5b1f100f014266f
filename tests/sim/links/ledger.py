"""The invariants of two sites, checked at each event: every append, every stored link record, every
permit after every step, and every answer to a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from dr.sites.core.sync_policies import is_suspended
from runtime.zookeeper.nodes import CheckNode, DeleteNode, TransactionStep
from tests.sim.disk import Disk, MemoryLog
from tests.sim.ledger import body_of
from tests.sim.links.plan import LINK, SITES, other, site_of
from tests.sim.links.stored_epochs import StoredEpochs
from tests.sim.node import Node
from tests.sim.stored_logs import StoredLog
from tests.sim.world import World
from tests.sim.zookeeper_ensemble import Ensemble
from tests.sim.zookeeper_tree import Tree
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.messages.produce_codec import ProduceResponse
from wire.rules.links import SyncPolicy, sync_policy
from wire.znodes import arbiter_znodes, link_znodes
from wire.znodes import layout as znodes
from wire.znodes.link_znodes import decode_link
from wire.znodes.topic_znodes import decode_partition_state

PERMITS_INTERVAL_S = 0.005

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """One batch that a client knows to be safe."""

    place: Place
    base_offset: int
    body: bytes
    site: str
    at_s: float


class LinkLedger:
    """The invariants of two sites."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disks: dict[int, Disk] = {}
        self.nodes: Mapping[int, Node] = {}
        self.acknowledged: list[Acknowledged] = []
        self.moves = 0
        self._writers: dict[tuple[bytes, int, int], int] = {}
        self._epochs: dict[str, int] = {}
        self._look_at_permits_s = 0.0
        self._moved_at_s = [math.inf]
        """When the link was made, and when the active site changed."""
        self._moved_to = ""
        self.may_operator_have_moved: Callable[[], bool] = lambda: False
        self.on_append: Callable[[int], object] = lambda _: None
        """Called with the node that appends a client's batch."""
        self.on_account: Callable[[str], object] = lambda _: None
        """Called with the site that keeps the account of a failover."""
        self.on_raise: Callable[[str], object] = lambda _: None
        """Called with the site that stores a raise of leader epochs."""
        self.on_record: Callable[[str, LinkRecord], object] = lambda *_: None
        """Called with the site that stores a link's record, and the record."""
        for name, ensemble in zip((*SITES, "arbiter"), world.ensembles, strict=True):
            ensemble.on_commit = self._check_commit_at(name)

    # --- what nodes do

    def of_node(self, node: int) -> _NodeObserver:
        """The ledger as the logs of one node know it."""
        return _NodeObserver(self, node)

    def image_taken(self, node: int, before: ClusterImage, after: ClusterImage) -> None:
        """A broker's record of the link never goes back."""
        for name, link in after.links.items():
            former = before.links.get(name)
            if former is not None and former.epoch > link.epoch:
                self._world.violate(
                    "link-epochs-grow", f"broker {node} goes from epoch {former.epoch} of {name} back to {link.epoch}"
                )

    def lost_power(self, _: int) -> None:
        """No host loses its power here."""

    def leader_appends(self, node: int, log: MemoryLog, leader_epoch: int) -> None:
        """One broker of one site writes in a leader epoch of a partition, for ever."""
        assert log.topic_id is not None
        if log.topic.startswith("__"):
            return
        writer = self._writers.setdefault((log.topic_id, log.partition, leader_epoch), node)
        if writer != node:
            self._world.violate(
                "one-writer-per-epoch",
                f"brokers {writer} and {node} both append to {log.topic}-{log.partition} in leader epoch {leader_epoch}",
            )
        self.on_append(node)

    def check_truncated(self, node: int, log: MemoryLog) -> None:
        """A leader of the passive site is truncated to the history that both sites have."""
        site, place = site_of(node), (log.topic, log.partition)
        record = self.record_at(site)
        is_passive = record is not None and record.active_site == other(site)
        if log.topic.startswith("__") or not is_passive or self._leaders_log(place, site) is not log.stored:
            return
        kept = [batch.content for batch in log.stored.batches]
        theirs = [[batch.content for batch in one.batches[: len(kept)]] for one in self.logs(place, other(site))]
        if kept not in theirs:
            self._world.violate(
                "returning-copies-share-the-history",
                f"broker {node} truncates {log.topic}-{log.partition} to offset {log.log_end_offset}, which is not the "
                f"history of {other(site)}",
            )

    def answers_produce(self, node: int, response: ProduceResponse) -> None:
        """Nothing is acknowledged that the other site lacks while brokers there may write: the
        permit is looked at right before the acknowledgement leaves.
        """
        site = site_of(node)
        holders = self.permit_holders(other(site))
        for topic in response.topics if holders else ():
            for produced in topic.partitions:
                place = (topic.name, produced.partition_index)
                ends = [log.end for log in self.logs(place, other(site))]
                if not produced.error_code and produced.base_offset >= max(ends, default=0):
                    self._world.violate(
                        "permits-do-not-overlap",
                        f"broker {node} acknowledges offset {produced.base_offset} of {place[0]}-{place[1]}, which "
                        f"{other(site)} does not have, while brokers {holders} may write",
                    )

    # --- what is stored

    def _check_commit_at(self, name: str) -> Callable[[Tree, TransactionStep], None]:
        path = arbiter_znodes.record_path(LINK) if name == "arbiter" else znodes.link_path(LINK)

        epochs = StoredEpochs(self._world, name, lambda: self.on_raise(name))

        def check(tree: Tree, step: TransactionStep) -> None:
            epochs.check(tree, step)
            if step.path.startswith(f"{link_znodes.failovers_path(LINK)}/") and not isinstance(step, DeleteNode):
                self.on_account(name)
            if isinstance(step, CheckNode | DeleteNode) or step.path != path:
                # an arbiter that has lost its data begins anew
                if isinstance(step, DeleteNode) and step.path == path:
                    self._epochs.pop(name, None)
                return
            if name == "arbiter":
                epoch = arbiter_znodes.decode_record(LINK, step.value).epoch
            else:
                record = decode_link(LINK, step.value)
                epoch = record.epoch
                self._note_move(name, tree, record)
                self.on_record(name, record)
            if epoch < self._epochs.get(name, 0):
                self._world.violate("link-epochs-grow", f"{name} goes from epoch {self._epochs[name]} to {epoch}")
            self._epochs[name] = epoch

        return check

    def _note_move(self, site: str, tree: Tree, record: LinkRecord) -> None:
        node = tree.nodes.get(znodes.link_path(LINK))
        if node is None:
            self._moved_at_s = [self._world.loop.now_s]
        if node is None or record.active_site != site:
            return
        former = decode_link(LINK, node.value)
        if former.active_site == site:
            return
        self.moves += 1
        if not self.may_operator_have_moved():
            self._check_automatic(site, former)
            self._check_history(site, former)
        self._moved_at_s.append(self._world.loop.now_s)
        self._moved_to = site

    def _check_automatic(self, site: str, former: LinkRecord) -> None:
        """A site that promotes itself must have everything from before the last move (F16), and on
        a sync link everything.
        """
        is_sync = sync_policy(former) is not SyncPolicy.NONE and not is_suspended(former)
        for one in self.acknowledged:
            if not is_sync and one.at_s >= self._moved_at_s[-1]:
                continue
            if any(has_batch(log, one.base_offset, one.body) for log in self.logs(one.place, site)):
                continue
            if any(has_batch(log, one.base_offset, one.body) for log in self.logs(one.place, former.active_site)):
                self._world.violate(
                    "promotes-itself-only-when-complete",
                    f"{site} promotes itself over epoch {former.epoch} without offset {one.base_offset} of "
                    f"{one.place[0]}-{one.place[1]}, which {one.site} acknowledged at {one.at_s:.3f} s",
                )
                return

    def check_planned(self, to_site: str) -> None:
        """Check that a switchover has copied all records that the former active site has
        acknowledged.
        """
        if self._moved_to != to_site:
            return  # another operator has moved on
        since_s = self._moved_at_s[-2]
        for one in self.acknowledged:
            if one.site == to_site or one.at_s < since_s:
                continue
            if not any(has_batch(log, one.base_offset, one.body) for log in self.logs(one.place, to_site)):
                self._world.violate(
                    "planned-moves-lose-nothing",
                    f"{one.place[0]}-{one.place[1]}: {one.site} acknowledged offset {one.base_offset} at {one.at_s:.3f} s, "
                    f"and the switchover to {to_site} has left it behind",
                )
                return

    def _check_history(self, site: str, former: LinkRecord) -> None:
        """A site that promotes itself has no records of its own: its logs are the beginning of the
        active site's logs.
        """
        for place in {one.place for one in self.acknowledged}:
            log = self._leaders_log(place, site)
            if log is None:
                continue
            copied = [batch.content for batch in log.batches]
            theirs = [
                [batch.content for batch in one.batches[: len(copied)]] for one in self.logs(place, former.active_site)
            ]
            if theirs and copied not in theirs:
                self._world.violate(
                    "promotes-itself-only-when-complete",
                    f"{site} promotes itself over epoch {former.epoch} with a log of {place[0]}-{place[1]} that ends at "
                    f"{log.end} and is not the history of {former.active_site}",
                )

    def _leaders_log(self, place: Place, site: str) -> StoredLog | None:
        node = self._ensemble(site).tree.nodes.get(znodes.partition_state_path(*place))
        if node is None:
            return None
        leader = decode_partition_state(*place, node.value).leader
        return self.disks[leader].logs.get(place) if leader in self.disks else None  # type: ignore[call-overload]

    def record_at(self, site: str) -> LinkRecord | None:
        """The link's record as the site's ZooKeeper has it."""
        node = self._ensemble(site).tree.nodes.get(znodes.link_path(LINK))
        return None if node is None else decode_link(LINK, node.value)

    def _ensemble(self, site: str) -> Ensemble:
        return self._world.ensembles[SITES.index(site)]

    # --- permits

    def check_permits(self) -> None:
        """Brokers of two sites never hold permits to write at the same moment."""
        if self._world.loop.now_s < self._look_at_permits_s:
            return
        self._look_at_permits_s = self._world.loop.now_s + PERMITS_INTERVAL_S
        holders = [node_id for site in SITES for node_id in self.permit_holders(site)]
        if len({site_of(node_id) for node_id in holders}) > 1:
            self._world.violate("permits-do-not-overlap", f"brokers {holders} may write at the same moment")

    def permit_holders(self, site: str) -> list[int]:
        """The site's brokers that may write now."""
        return [node.node_id for node in self.nodes.values() if site_of(node.node_id) == site and _holds_permit(node)]

    # --- clients

    def acknowledge(self, place: Place, base_offset: int, body: bytes, node: int) -> None:
        """A producer was told, with acks=all, that its records are at this offset."""
        site = site_of(node)
        self.acknowledged.append(
            Acknowledged(place=place, base_offset=base_offset, body=body, site=site, at_s=self._world.loop.now_s)
        )
        record = self.record_at(site)
        if record is None or sync_policy(record) is not SyncPolicy.BLOCK or record.active_site != site:
            return
        if not any(has_batch(log, base_offset, body) for log in self.logs(place, other(site))):
            self._world.violate(
                "sync-links-wait-for-the-standby",
                f"{place[0]}-{place[1]}: broker {node} acknowledged offset {base_offset}, which {other(site)} does not have",
            )

    def logs(self, place: Place, site: str) -> Iterator[StoredLog]:
        """The partition's logs on the site's disks."""
        for node_id, disk in self.disks.items():
            log = disk.logs.get(place)  # type: ignore[call-overload]
            if site_of(node_id) == site and log is not None:
                yield log


class _NodeObserver:
    def __init__(self, ledger: LinkLedger, node: int) -> None:
        self._ledger = ledger
        self._node = node

    def high_watermark_moved(self, log: MemoryLog, former: int) -> None:
        """The other kinds of seeds check the committed records of a site."""

    def truncated(self, log: MemoryLog) -> None:
        self._ledger.check_truncated(self._node, log)

    def leader_appends(self, log: MemoryLog, leader_epoch: int) -> None:
        self._ledger.leader_appends(self._node, log, leader_epoch)


def has_batch(log: StoredLog, base_offset: int, body: bytes) -> bool:
    """Whether the log has the batch at its offset."""
    return any(batch.base_offset == base_offset and body_of(batch.content) == body for batch in reversed(log.batches))


def _holds_permit(node: Node) -> bool:
    if not node.is_running or node.running is None:
        return False
    cluster = node.running.broker.cluster
    link = cluster.image.links.get(LINK)
    if link is None or cluster.image.role_in(link) is not LinkRole.ACTIVE:
        return False
    return not cluster.permits.is_lapsed(cluster.image, link, now_ms=node.clock.monotonic_ms())
