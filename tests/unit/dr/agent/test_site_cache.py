"""The site agent's copy of its ZooKeeper when a tool writes unreadable content."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.protocol.states import WatchedEvent
from msgspec.structs import replace

from dr.agent.core.site_view import Place, unknown_link
from dr.agent.own_brokers import OwnBrokers
from dr.agent.site_cache import SiteCache, _all_of
from dr.sites.channels import Channels
from runtime.zookeeper.nodes import NodeStat
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkRecord
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import BrokerRegistration, encode_broker
from wire.znodes.cluster_znodes import ControllerRegistration, encode_controller
from wire.znodes.link_znodes import encode_link
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment, encode_partition_state, encode_topic

CONTROLLER = ControllerRegistration(controller_id=1, timestamp_ms=0)
LINK = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


STAT = NodeStat(version=0, czxid=1, mzxid=1, created_at_ms=0, ephemeral_owner=0)


class Nodes:
    """The part of a ZooKeeper session that the cache uses; `put` fires the watch of a znode."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.failures: list[Exception] = []
        """What the next reads of data raise."""
        self.children_seen: set[str] = set()
        """Paths that a list contained."""
        self._watches: dict[str, Any] = {}

    async def get_many_watched(self, watches: Mapping[str, Any]) -> list[tuple[bytes, NodeStat] | None]:
        """The data of znodes; None for a missing one."""
        self._watches.update(watches)
        if self.failures:
            raise self.failures.pop()
        return [(self.nodes[path], STAT) if path in self.nodes else None for path in watches]

    async def children(self, path: str, *, watch: Any) -> list[str]:
        """The names below a path."""
        self._watches[path] = watch
        found = [node for node in self.nodes if node.rpartition("/")[0] == path]
        self.children_seen.update(found)
        return sorted(node.rpartition("/")[2] for node in found)

    def add(self, path: str, value: bytes) -> None:
        """Make a znode."""
        self.nodes[path] = value
        self._fire(path.rpartition("/")[0])

    def remove(self, path: str) -> None:
        """Delete a znode."""
        del self.nodes[path]
        self._fire(path.rpartition("/")[0])

    def gone(self, path: str) -> None:
        """Delete a znode that is watched itself."""
        del self.nodes[path]
        self._fire(path)

    def _fire(self, path: str) -> None:
        self._watches[path](WatchedEvent("CHILD", "CONNECTED", path))

    def put(self, path: str, value: bytes) -> None:
        """Write a znode."""
        self.nodes[path] = value
        self._watches[path](WatchedEvent("CHANGED", "CONNECTED", path))


OTHER_LINK = LinkRecord(
    name="a-c", source_site="a", target_site="c", active_site="a", epoch=1, topic_whitelist=["t.*"], is_routed=True
)
BROKER = BrokerRegistration(node_id=1, endpoints=(), grpc_address="h:1")
TOPIC = TopicAssignment(topic_id=bytes(range(16)), partitions={0: (1,)})
STATE = StoredPartitionState(leader=1, leader_epoch=1, isr=(1,), controller_epoch=1)


def site_of_two() -> Nodes:
    """A site with two links, brokers and topics."""
    nodes = Nodes()
    nodes.nodes[znodes.CONTROLLER] = encode_controller(CONTROLLER)
    for link in (LINK, OTHER_LINK):
        nodes.nodes[znodes.link_path(link.name)] = encode_link(link)
    for node in (1, 2):
        nodes.nodes[znodes.broker_path(node)] = encode_broker(replace(BROKER, node_id=node))
    for topic in ("t1", "t2"):
        nodes.nodes[znodes.topic_path(topic)] = encode_topic(TOPIC)
    return nodes


PLACES = [
    (znodes.CONTROLLER, Place("controller", "")),
    (znodes.link_path("a-b"), Place("link", "a-b")),
    (znodes.broker_path(2), Place("broker", "2")),
    (znodes.topic_path("t2"), Place("topic", "t2")),
]


@pytest.mark.parametrize(("path", "place"), PLACES)
async def test_a_malformed_znode_costs_what_it_is_of_until_it_is_mended(path: str, place: Place) -> None:
    nodes = site_of_two()
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        before = cache.facts
        assert before.unreadable == {}
        sound = nodes.nodes[path]
        nodes.put(path, b"no such thing")
        await eventually(lambda: list(cache.facts.unreadable) == [place])
        assert path in cache.facts.unreadable[place]
        assert cache.facts.links == before.links, "a link stays what it was"
        assert set(cache.facts.brokers) == ({1} if place.kind == "broker" else {1, 2})
        assert set(cache.facts.topics) == ({"t1"} if place.kind == "topic" else {"t1", "t2"})
        # the cache follows other changes
        nodes.add(znodes.broker_path(3), encode_broker(replace(BROKER, node_id=3)))
        await eventually(lambda: 3 in cache.facts.brokers)
        nodes.put(path, sound)
        await eventually(lambda: cache.facts.unreadable == {})
        assert (cache.facts.links, cache.facts.topics) == (before.links, before.topics)
    finally:
        await cache.stop()


@pytest.mark.parametrize(("path", "place"), PLACES)
async def test_an_agent_starts_although_a_znode_is_unreadable_and_reads_it_after_its_repair(
    path: str, place: Place
) -> None:
    nodes = site_of_two()
    sound, nodes.nodes[path] = nodes.nodes[path], b"no such thing"
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert list(cache.facts.unreadable) == [place]
        assert set(cache.facts.links) == ({"a-c"} if place.kind == "link" else {"a-b", "a-c"})
        nodes.put(path, sound)
        await eventually(lambda: cache.facts.unreadable == {} and set(cache.facts.links) == {"a-b", "a-c"})
    finally:
        await cache.stop()


async def test_a_peer_is_refused_a_view_while_the_link_to_it_was_never_understood() -> None:
    nodes = site_of_two()
    nodes.nodes[znodes.link_path("a-b")] = b"no such thing"
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert znodes.link_path("a-b") in unknown_link(cache.facts, asking_site="b")
        assert unknown_link(cache.facts, asking_site="c") == ""
        assert unknown_link(cache.facts, asking_site="") == ""
    finally:
        await cache.stop()


async def test_a_broker_whose_registration_cannot_be_understood_is_reported_and_never_passed_over() -> None:
    nodes = site_of_two()
    nodes.nodes[znodes.broker_path(1)] = b"no such thing"
    del nodes.nodes[znodes.broker_path(2)]
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        brokers = OwnBrokers(cache, Channels(), ManualClock())
        (problem,) = (await brokers.wait_enforced(LINK, timeout_ms=0)).problems
        assert znodes.broker_path(1) in problem
    finally:
        await cache.stop()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{znodes.BROKER_IDS}/none", b"{}"),
        (znodes.link_path("a-c"), b'{"name": "a-c", "topic_whitelist": ["("]}'),
        (znodes.link_path("a-c"), b'{"name": "a-c", "topic_whitelist": ["a{99999999999999}"]}'),
    ],
)
async def test_changes_are_followed_after_unexpected_content_was_written(path: str, value: bytes) -> None:
    own = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[znodes.topic_path("t")] = b""  # no link carries it, so the cache does not read it
    nodes.nodes[own] = encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        nodes.add(path, value)
        await eventually(lambda: path in nodes.children_seen)
        nodes.remove(path)
        mended = LinkRecord()
        mended.CopyFrom(LINK)
        mended.epoch = 2
        nodes.put(own, encode_link(mended))
        await eventually(lambda: cache.facts.links[LINK.name].epoch == 2)
    finally:
        await cache.stop()


async def test_a_znode_that_could_not_be_read_once_is_read_again() -> None:
    path = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[path] = encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        mended = LinkRecord()
        mended.CopyFrom(LINK)
        mended.epoch = 2
        nodes.failures = [NoAuthError()]
        nodes.put(path, encode_link(mended))
        await eventually(lambda: cache.facts.links[LINK.name].epoch == 2)
    finally:
        await cache.stop()


async def test_a_connection_that_is_lost_while_everything_is_read_first_does_not_end_the_start() -> None:
    class LostOnce(Nodes):
        is_lost = True

        async def get_many_watched(self, watches: Mapping[str, Any]) -> list[tuple[bytes, NodeStat] | None]:
            if self.is_lost:
                self.is_lost = False
                raise ConnectionLoss
            return await super().get_many_watched(watches)

    nodes = LostOnce()
    nodes.nodes[znodes.link_path(LINK.name)] = encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert cache.facts.links[LINK.name].epoch == 1
    finally:
        await cache.stop()


async def test_a_znode_that_is_gone_is_gone_although_the_connection_was_lost_while_that_was_noticed() -> None:
    nodes = Nodes()
    nodes.nodes[znodes.CONTROLLER] = encode_controller(CONTROLLER)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert cache.facts.controller_id == CONTROLLER.controller_id
        nodes.failures.append(ConnectionLoss())
        nodes.gone(znodes.CONTROLLER)
        await eventually(lambda: cache.facts.controller_id == -1)
    finally:
        await cache.stop()


async def test_a_changed_partition_state_is_read_and_nothing_else_is() -> None:
    """A promotion changes the states of all partitions."""

    class NotingNodes(Nodes):
        def __init__(self) -> None:
            super().__init__()
            self.read: set[str] = set()

        async def get_many_watched(self, watches: Mapping[str, Any]) -> list[tuple[bytes, NodeStat] | None]:
            self.read.update(watches)
            return await super().get_many_watched(watches)

    nodes = NotingNodes()
    nodes.nodes.update(site_of_two().nodes)
    paths = [znodes.partition_state_path(topic, 0) for topic in ("t1", "t2")]
    for path in paths:
        nodes.nodes[path] = encode_partition_state(STATE)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert {state.leader_epoch for state, _ in cache.facts.states.values()} == {1}
        changes = cache.changes
        nodes.read.clear()
        nodes.put(paths[0], encode_partition_state(replace(STATE, leader_epoch=7)))
        await eventually(lambda: cache.facts.states["t1", 0][0].leader_epoch == 7)
        assert cache.facts.states["t2", 0][0].leader_epoch == 1
        assert nodes.read == {paths[0]}
        assert cache.changes > changes
        # partitions that are added later are found all the same
        grown = replace(TOPIC, partitions={0: (1,), 1: (1,)})
        nodes.nodes[znodes.partition_state_path("t1", 1)] = encode_partition_state(replace(STATE, leader_epoch=3))
        nodes.put(znodes.topic_path("t1"), encode_topic(grown))
        await eventually(lambda: ("t1", 1) in cache.facts.states)
        assert cache.facts.states["t1", 1][0].leader_epoch == 3
    finally:
        await cache.stop()


async def test_only_the_record_of_a_link_that_carries_other_topics_names_znodes_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writers wait for the record of a link that moves, and a site has thousands of partitions."""
    named: list[str] = []
    path_of = znodes.partition_state_path

    def path(topic: str, index: int) -> str:
        named.append(topic)
        return path_of(topic, index)

    monkeypatch.setattr("dr.agent.site_cache.znodes.partition_state_path", path)
    nodes = Nodes()
    carried = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", topic_whitelist=["t1"])
    nodes.nodes[znodes.link_path("a-b")] = encode_link(carried)
    for topic in ("t1", "t2"):
        nodes.nodes[znodes.topic_path(topic)] = encode_topic(TOPIC)
        nodes.nodes[path_of(topic, 0)] = encode_partition_state(STATE)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert set(cache.facts.states) == {("t1", 0)}
        named.clear()
        carried.epoch = 2
        nodes.put(znodes.link_path("a-b"), encode_link(carried))
        await eventually(lambda: cache.facts.links["a-b"].epoch == 2)
        assert named == []
        carried.topic_whitelist[:] = ["t2"]
        nodes.put(znodes.link_path("a-b"), encode_link(carried))
        await eventually(lambda: set(cache.facts.states) == {("t2", 0)})
        assert "t2" in named
    finally:
        await cache.stop()


async def test_states_that_change_in_great_number_are_read_after_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait for a promotion, which the agents learn from the link's record."""
    monkeypatch.setattr("dr.agent.site_cache.STATES_AT_ONCE_MAX", 1)
    monkeypatch.setattr("dr.agent.site_cache.STATES_PAUSE_S", 0.5)
    nodes = site_of_two()
    paths = [znodes.partition_state_path(topic, 0) for topic in ("t1", "t2")]
    for path in paths:
        nodes.nodes[path] = encode_partition_state(STATE)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert {state.leader_epoch for state, _ in cache.facts.states.values()} == {1}
        raised = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="b", epoch=2)
        nodes.put(znodes.link_path("a-b"), encode_link(raised))
        for path in paths:
            nodes.put(path, encode_partition_state(replace(STATE, leader_epoch=7)))
        seen: list[set[int]] = []

        def note() -> None:
            seen.append({state.leader_epoch for state, _ in cache.facts.states.values()})

        cache.on_change(note)
        await eventually(lambda: len(seen) == 2)
        assert cache.facts.links["a-b"] == raised
        assert seen == [{1}, {7}]
        # a single one is read at once again
        nodes.put(paths[0], encode_partition_state(replace(STATE, leader_epoch=8)))
        await eventually(lambda: cache.facts.states["t1", 0][0].leader_epoch == 8)
    finally:
        await cache.stop()


async def test_the_next_look_waits_for_all_reads_of_one_that_failed() -> None:
    """A reader that ended later would change a value that is not decoded again, or fail without a
    retry.
    """
    may_end, ended = asyncio.Event(), list[str]()

    async def read(path: str) -> None:
        if path == "lost":
            raise ConnectionLoss
        await may_end.wait()
        ended.append(path)

    reading = asyncio.create_task(_all_of(map(read, ["lost", "late"])))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    may_end.set()
    with pytest.raises(ConnectionLoss):
        await reading
    assert ended == ["late"]
