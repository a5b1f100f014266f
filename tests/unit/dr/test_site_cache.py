"""The site agent's copy of its ZooKeeper when somebody writes what cannot be understood."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import WatchedEvent

from dr.site_cache import SiteCache
from runtime.zookeeper import NodeStat
from tests.support.eventually import eventually
from wire import znodes
from wire.control.cluster_pb2 import LinkRecord

LINK = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


class Nodes:
    """As much of a ZooKeeper session as the cache uses; `put` fires the watch of a znode."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self._watches: dict[str, Any] = {}

    async def get(self, path: str, *, watch: Any) -> tuple[bytes, NodeStat]:
        """The data of a znode."""
        self._watches[path] = watch
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path], NodeStat(version=0, czxid=1, mzxid=1, created_at_ms=0, ephemeral_owner=0)

    async def exists(self, path: str, *, watch: Any) -> NodeStat | None:
        """Whether there is such a znode."""
        self._watches[path] = watch
        return None

    async def children(self, path: str, *, watch: Any) -> list[str]:
        """The names below a path."""
        return sorted(node.rpartition("/")[2] for node in self.nodes if node.rpartition("/")[0] == path)

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
