"""One ZooKeeper server in memory, for one client: no session is lost, and every answer comes at
once unless the test holds it.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from runtime.zookeeper.nodes import CreateNode, DeleteNode, NodeStat, SetNode, TransactionStep
from runtime.zookeeper.sessions import SessionState
from tests.sim.zookeeper_tree import Tree, parent_of

SESSION = 1


class HeldRead:
    """The next read of one path: it is done, and its answer waits for `release`."""

    def __init__(self) -> None:
        self.is_reached = False
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let the answer come."""
        self._released.set()

    async def pause(self) -> None:
        """Wait for `release`."""
        self.is_reached = True
        await self._released.wait()


class MemoryZooKeeper(ZooKeeper):
    """The client and its server."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._held: dict[str, HeldRead] = {}
        self._watches: dict[tuple[str, str], list[Watch]] = defaultdict(list)

    @property
    def state(self) -> SessionState:
        return SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        return SESSION

    def hold(self, path: str) -> HeldRead:
        """Hold the answer of the next read of the path."""
        held = self._held[path] = HeldRead()
        return held

    async def _answered(self, path: str) -> None:
        await asyncio.sleep(0)
        if (held := self._held.pop(path, None)) is not None:
            await held.pause()

    def _set_watch(self, kind: str, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches[kind, path].append(watch)

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, NodeStat]:
        node = self.tree.nodes.get(path)
        found = None if node is None else (node.value, node.stat())
        if found is not None:
            self._set_watch("data", path, watch)
        await self._answered(path)
        if found is None:
            raise NoNodeError
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, NodeStat] | None]:
        return [await self.get_or_none(path) for path in paths]

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        node = self.tree.nodes.get(path)
        found = None if node is None else node.stat()
        self._set_watch("data", path, watch)
        await self._answered(path)
        return found

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        return (await self.children_and_stat(path, watch=watch))[0]

    async def children_and_stat(self, path: str, *, watch: Watch | None = None) -> tuple[list[str], NodeStat]:
        node = self.tree.nodes.get(path)
        found = None if node is None else (sorted(node.children), node.stat())
        if found is not None:
            self._set_watch("children", path, watch)
        await self._answered(path)
        if found is None:
            raise NoNodeError
        return found

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequence: bool = False,
        make_path: bool = False,
    ) -> str:
        if make_path:
            await self.ensure_path(parent_of(path))
        name = f"{path}{self.tree.zxid:010d}" if is_sequence else path
        await self.transaction([CreateNode(path=name, value=value, is_ephemeral=is_ephemeral)])
        return name

    async def ensure_path(self, path: str) -> None:
        if path not in self.tree.nodes:
            await self.ensure_path(parent_of(path))
            await self.transaction([CreateNode(path=path)])

    async def set(self, path: str, value: bytes, *, version: int = -1) -> NodeStat:
        await self.transaction([SetNode(path=path, value=value, version=version)])
        return (await self.get(path))[1]

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        assert not recursive, "nothing here deletes trees"
        await self.transaction([DeleteNode(path=path, version=version)])

    async def transaction(self, steps: Sequence[TransactionStep]) -> list[Any]:
        """All steps or none, each checked after the ones before it."""
        await asyncio.sleep(0)
        changed, fired = copy.deepcopy(self.tree), []
        for step in steps:
            if (failure := changed.check(step)) is not None:
                raise failure
            fired += changed.apply(step, zxid=changed.zxid + 1, session=SESSION, now_ms=0)
        changed.zxid += 1
        self.tree = changed
        for key in fired:
            for watch in self._watches.pop(key, ()):
                watch(WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, key[1]))
        return []
