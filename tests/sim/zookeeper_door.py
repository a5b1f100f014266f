"""The ZooKeeper door of a simulated process: kazoo's behaviour over a simulated connection.

As kazoo: SUSPENDED while disconnected, LOST only after the reconnection; requests in between wait,
requests in flight fail with an unknown outcome, watches fire when the connection breaks. Sequences
of the real door that are made of others (`get_or_none`) are inherited.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kazoo.exceptions import ConnectionLoss, NodeExistsError, RolledBackError, SessionExpiredError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from runtime.zookeeper.nodes import CreateNode, DeleteNode, NodeStat, SetNode, TransactionStep
from runtime.zookeeper.sessions import NoteSession, SessionKey, SessionListener, SessionState, note_no_session
from tests.sim.network import End
from tests.sim.virtual_loop import Process
from tests.sim.world import World
from tests.sim.zookeeper_tree import parent_of

_FIRED = WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, None)
_BROKEN = WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None)


class SimZooKeeper(ZooKeeper):
    """One client's session."""

    def __init__(
        self,
        world: World,
        process: Process,
        *,
        session_timeout_ms: int,
        note_session: NoteSession = note_no_session,
        connect: str = "",
    ) -> None:
        """`connect` names a server of the ensemble; empty: the one ensemble of the world."""
        self._world = world
        self._ensemble = world.ensemble_at(connect)
        self._note_session = note_session
        self._process = process
        self._timeout_s = session_timeout_ms / 1000
        self._listeners: list[SessionListener] = []
        self._state = SessionState.LOST
        self._is_stopped = False
        self._session = 0
        self._zxid_seen = 0
        self._end: End | None = None
        self._heard_at_s = 0.0
        self._number = 0
        self._under_way: dict[int, asyncio.Future[Any]] = {}
        self._watches: dict[tuple[str, str], list[Watch]] = defaultdict(list)
        self._connected = asyncio.Event()

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session

    async def start(self, *, timeout_ms: int = 10_000) -> None:
        self._process.spawn(self._stay_connected(), name="zookeeper client")
        await self._connected.wait()

    def _report_session(self) -> None:
        self._note_session(SessionKey(self._session, b""))

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._end is not None:
            self._end.send(("write", 0, (), True))
            await self._world.pause(0.02)
            self._end = None

    # --- the connection

    async def _stay_connected(self) -> None:
        while not self._is_stopped:
            server = self._world.chance.choice(self._ensemble.servers).name
            answered: asyncio.Future[tuple[Any, ...]] = self._world.loop.create_future()
            try:
                async with asyncio.timeout(self._timeout_s / 3):
                    end = await self._world.network.connect(f"{server}:2181", "zookeeper")
                    end.on_message = lambda message, answered=answered: _settle(answered, message)  # type: ignore[misc]
                    end.on_lost = lambda answered=answered: _settle(answered, ("lost",))  # type: ignore[misc]
                    end.send(("connect", 0, self._session, self._timeout_s, self._zxid_seen))
                    message = await answered
            except (TimeoutError, ConnectionRefusedError):
                await self._world.pause(self._world.chance.uniform(0.05, 0.2))
                continue
            if message[0] == "expired":
                self._session, self._zxid_seen = 0, 0
                self._publish_state(SessionState.LOST)
            elif message[0] == "connected":
                await self._serve(end, message)
                continue
            end.close()
            await self._world.pause(self._world.chance.uniform(0.02, 0.1))

    async def _serve(self, end: End, message: tuple[Any, ...]) -> None:
        self._session = message[1]
        self._end = end
        self._heard_at_s = self._world.loop.now_s
        lost = asyncio.Event()
        end.on_message = self._receive
        end.on_lost = lost.set
        self._publish_state(SessionState.CONNECTED)
        self._connected.set()
        while not lost.is_set():
            end.send(("ping", 0))
            try:
                async with asyncio.timeout(self._timeout_s / 3):
                    await lost.wait()
            except TimeoutError:
                if self._world.loop.now_s - self._heard_at_s > self._timeout_s * 2 / 3:
                    break
        end.close()
        self._end = None
        self._connected.clear()
        self._publish_state(SessionState.SUSPENDED)
        under_way, self._under_way = self._under_way, {}
        for future in under_way.values():
            if not future.done():
                future.set_exception(ConnectionLoss())
        watches, self._watches = self._watches, defaultdict(list)
        for waiting in watches.values():
            for watch in waiting:
                self._process.call(watch, _BROKEN)

    def _receive(self, message: tuple[Any, ...]) -> None:
        self._heard_at_s = self._world.loop.now_s
        if message[0] == "watch":
            for watch in self._watches.pop(message[1], ()):
                self._process.call(watch, _FIRED)
        elif message[0] == "answer":
            _, number, zxid, answer = message
            self._zxid_seen = max(self._zxid_seen, zxid)
            future = self._under_way.pop(number, None)
            if future is not None and not future.done():
                future.set_result(answer)

    async def _ask(self, kind: str, *arguments: Any) -> Any:
        while self._end is None:
            if self._is_stopped:
                raise SessionExpiredError
            await self._connected.wait()
        self._number += 1
        future = self._under_way[self._number] = self._world.loop.create_future()
        self._end.send((kind, self._number, *arguments))
        answer = await future
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _read(self, kind: str, path: str, watch: Watch | None) -> Any:
        if watch is None:
            return await self._ask(kind, path, False)
        key = ("children" if kind.startswith("children") else "data", path)
        self._watches[key].append(watch)
        try:
            return await self._ask(kind, path, True)
        except Exception:
            if watch in self._watches[key] and kind != "exists":
                self._watches[key].remove(watch)
            raise

    # --- requests

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequence: bool = False,
        make_path: bool = False,
    ) -> str:
        assert not is_sequence, "nothing here asks for sequences"
        if make_path:
            await self.ensure_path(parent_of(path))
        await self.transaction([CreateNode(path=path, value=value, is_ephemeral=is_ephemeral)])
        return path

    async def ensure_path(self, path: str) -> None:
        if path == "/" or await self.exists(path) is not None:
            return
        await self.ensure_path(parent_of(path))
        try:
            await self.transaction([CreateNode(path=path)])
        except NodeExistsError:
            return

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, NodeStat]:
        found: tuple[bytes, NodeStat] = await self._read("get", path, watch)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, NodeStat] | None]:
        found: list[tuple[bytes, NodeStat] | None] = await self._ask("get_many", tuple(paths))
        return found

    async def get_many_watched(self, watches: Mapping[str, Watch]) -> list[tuple[bytes, NodeStat] | None]:
        return list(await asyncio.gather(*(self.get_or_none(path, watch=watch) for path, watch in watches.items())))

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        found: NodeStat | None = await self._read("exists", path, watch)
        return found

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        found: list[str] = await self._read("children", path, watch)
        return found

    async def children_and_stat(self, path: str, *, watch: Watch | None = None) -> tuple[list[str], NodeStat]:
        found: tuple[list[str], NodeStat] = await self._read("children_and_stat", path, watch)
        return found

    async def set(self, path: str, value: bytes, *, version: int = -1) -> NodeStat:
        await self.transaction([SetNode(path=path, value=value, version=version)])
        return (await self.get(path))[1]

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        if recursive:
            for child in await self.children(path):
                await self.delete(f"{path}/{child}", recursive=True)
        await self.transaction([DeleteNode(path=path, version=version)])

    async def transaction(self, steps: Sequence[TransactionStep]) -> list[Any]:
        results: list[Any] = await self._ask("write", tuple(steps), False)
        failures = [result for result in results if isinstance(result, Exception)]
        for failure in [found for found in failures if not isinstance(found, RolledBackError)] or failures:
            raise failure
        return results


def _settle(future: asyncio.Future[Any], message: tuple[Any, ...]) -> None:
    if not future.done():
        future.set_result(message)
