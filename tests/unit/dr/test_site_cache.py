"""The site agent's copy of its ZooKeeper when somebody writes what cannot be understood."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from dr.site_cache import SiteCache
from runtime.zookeeper import NodeStat
from tests.support.eventually import eventually
from wire import znodes
from wire.control.cluster_pb2 import LinkRecord

CONTROLLER = znodes.ControllerRegistration(controller_id=1, timestamp_ms=0)
LINK = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


class Nodes:
    """As much of a ZooKeeper session as the cache uses; `put` fires the watch of a znode."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.failures: list[Exception] = []
        """What the next reads of data raise."""
        self.lost_looks: list[Exception] = []
        """What the next questions whether there is such a znode raise."""
        self.children_seen: set[str] = set()
        """Paths that a list told of."""
        self._watches: dict[str, Any] = {}

    async def get(self, path: str, *, watch: Any) -> tuple[bytes, NodeStat]:
        """The data of a znode."""
        if self.failures:
            raise self.failures.pop()
        self._watches[path] = watch
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path], NodeStat(version=0, czxid=1, mzxid=1, created_at_ms=0, ephemeral_owner=0)

    async def exists(self, path: str, *, watch: Any) -> NodeStat | None:
        """Whether there is such a znode."""
        if self.lost_looks:
            raise self.lost_looks.pop()
        self._watches[path] = watch
        return None

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


async def test_a_znode_that_cannot_be_understood_is_told_to_whoever_asks_and_does_not_end_the_watch() -> None:
    path = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[path] = znodes.encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert cache.facts.links[LINK.name].epoch == 1

        nodes.put(path, b"not a link")
        await eventually(lambda: _is_refused(cache))

        mended = LinkRecord()
        mended.CopyFrom(LINK)
        mended.epoch = 2
        nodes.put(path, znodes.encode_link(mended))
        await eventually(lambda: not _is_refused(cache) and cache.facts.links[LINK.name].epoch == 2)
    finally:
        await cache.stop()


def _is_refused(cache: SiteCache) -> bool:
    try:
        return cache.facts is None
    except znodes.MalformedZnode:
        return True


async def test_an_agent_starts_although_a_znode_cannot_be_understood_and_hears_of_its_repair() -> None:
    path = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[path] = b"not a link"
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert _is_refused(cache)
        nodes.put(path, znodes.encode_link(LINK))
        await eventually(lambda: not _is_refused(cache))
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
async def test_changes_are_followed_after_somebody_wrote_what_nobody_expects(path: str, value: bytes) -> None:
    own = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[znodes.topic_path("t")] = b""  # what is carried by no link is not read
    nodes.nodes[own] = znodes.encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        nodes.add(path, value)
        await eventually(lambda: path in nodes.children_seen)
        nodes.remove(path)
        mended = LinkRecord()
        mended.CopyFrom(LINK)
        mended.epoch = 2
        nodes.put(own, znodes.encode_link(mended))
        await eventually(lambda: not _is_refused(cache) and cache.facts.links[LINK.name].epoch == 2)
    finally:
        await cache.stop()


async def test_what_could_not_be_read_once_is_read_again() -> None:
    path = znodes.link_path(LINK.name)
    nodes = Nodes()
    nodes.nodes[path] = znodes.encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        mended = LinkRecord()
        mended.CopyFrom(LINK)
        mended.epoch = 2
        nodes.failures = [NoAuthError()]
        nodes.put(path, znodes.encode_link(mended))
        await eventually(lambda: cache.facts.links[LINK.name].epoch == 2)
    finally:
        await cache.stop()


async def test_a_connection_that_is_lost_while_everything_is_read_first_does_not_end_the_start() -> None:
    class LostOnce(Nodes):
        is_lost = True

        async def get(self, path: str, *, watch: Any) -> tuple[bytes, NodeStat]:
            if self.is_lost:
                self.is_lost = False
                raise ConnectionLoss
            return await super().get(path, watch=watch)

    nodes = LostOnce()
    nodes.nodes[znodes.link_path(LINK.name)] = znodes.encode_link(LINK)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert cache.facts.links[LINK.name].epoch == 1
    finally:
        await cache.stop()


async def test_a_znode_that_is_gone_is_gone_although_the_connection_was_lost_while_that_was_noticed() -> None:
    nodes = Nodes()
    nodes.nodes[znodes.CONTROLLER] = znodes.encode_controller(CONTROLLER)
    cache = SiteCache("a", nodes)  # type: ignore[arg-type]
    await cache.start()
    try:
        assert cache.facts.controller_id == CONTROLLER.controller_id
        nodes.lost_looks.append(ConnectionLoss())
        nodes.gone(znodes.CONTROLLER)
        await eventually(lambda: cache.facts.controller_id == -1)
    finally:
        await cache.stop()


async def test_the_next_look_waits_for_all_reads_of_one_that_failed() -> None:
    """One that ended later would change what nobody decodes again, or fail where nobody tries again."""
    may_end, ended = asyncio.Event(), list[str]()

    async def read(path: str) -> None:
        if path == "lost":
            raise ConnectionLoss
        await may_end.wait()
        ended.append(path)

    reading = asyncio.create_task(SiteCache("a", Nodes())._read_each(read, ["lost", "late"]))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    may_end.set()
    with pytest.raises(ConnectionLoss):
        await reading
    assert ended == ["late"]
