"""The ZooKeeper door when kazoo fails under it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from deploy.zookeeper_server import ZooKeeperServer
from runtime.zookeeper.access import client_options
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import NodeStat
from runtime.zookeeper.sessions import SessionState
from tests.support.eventually import eventually
from tests.support.processes.ports import free_port
from tests.support.processes.processes import Processes
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.security.identities import Identities
from wire.access.zookeeper import protect_zookeeper

pytestmark = pytest.mark.integration


@pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
async def test_after_kazoo_gave_its_connection_up_another_session_is_begun(
    zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = ZooKeeper(zookeeper_connect, session_timeout_ms=20_000)
    await zookeeper.start()
    seen: list[SessionState] = []
    zookeeper.on_session(seen.append)
    connection: Any = zookeeper._client._connection
    first = zookeeper.session_id

    def lose_count(handler: Any, header: Any, buffer: Any, offset: int) -> None:
        monkeypatch.undo()
        _, pending, _ = connection.client._pending.popleft()
        error = RuntimeError("xids do not match")
        pending.set_exception(error)
        raise error

    try:
        await zookeeper.create("/ephemeral", is_ephemeral=True)
        monkeypatch.setattr(type(connection), "_read_response", lose_count)
        with pytest.raises(ConnectionLoss):
            await zookeeper.get("/ephemeral")
        await eventually(lambda: zookeeper.state is SessionState.CONNECTED and zookeeper.session_id != first)
        assert seen == [SessionState.LOST, SessionState.CONNECTED]
        assert await zookeeper.exists("/") is not None
    finally:
        await zookeeper.stop()


async def test_many_nodes_are_read_at_once_in_the_order_asked(zookeeper_connect: str) -> None:
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    try:
        await zookeeper.create("/states/1", b"one", make_path=True)
        await zookeeper.create("/states/2")
        await zookeeper.set("/states/1", b"once more")
        first, missing, empty, again = await zookeeper.get_many(["/states/1", "/gone", "/states/2", "/states/1"])
        assert first == await zookeeper.get("/states/1")
        assert missing is None
        assert empty == (b"", await zookeeper.exists("/states/2"))
        assert again == first
        assert await zookeeper.get_many([]) == []
        paths = [f"/states/{number}" for number in range(3000)]
        assert [node is not None for node in await zookeeper.get_many(paths)] == [
            0 < number < 3 for number in range(3000)
        ]
    finally:
        await zookeeper.stop()


async def test_the_watches_of_many_nodes_fire_once_at_each_kind_of_change(zookeeper_connect: str) -> None:
    zookeeper, other = ZooKeeper(zookeeper_connect), ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    await other.start()
    fired: list[str] = []
    paths = [f"/watched/{name}" for name in ("changed", "deleted", "created", "untouched", "missing")]
    watches = {path: partial(lambda path, _: fired.append(path), path) for path in paths}
    try:
        await zookeeper.ensure_path("/watched")
        for path in (*paths[:2], paths[3]):
            await zookeeper.create(path, b"before")
        found = await zookeeper.get_many_watched(watches)
        assert [None if node is None else node[0] for node in found] == [b"before", b"before", None, b"before", None]
        await other.set(paths[0], b"after")
        await other.set(paths[0], b"once more")
        await other.delete(paths[1])
        await other.create(paths[2])
        await eventually(lambda: len(fired) == 3)
        # the answer to a later read arrives after every event before it
        assert (await zookeeper.get(paths[0]))[0] == b"once more"
        assert sorted(fired) == sorted(paths[:3])
    finally:
        await zookeeper.stop()
        await other.stop()


async def test_a_change_between_the_read_of_many_nodes_and_their_watches_fires_a_watch(
    zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    fired: list[int] = []
    read = zookeeper.get_many

    async def read_before_a_change(paths: Sequence[str]) -> list[tuple[bytes, NodeStat] | None]:
        found = await read(paths)
        await zookeeper.set("/between/1", b"after")
        await zookeeper.create("/between/3")
        return found

    try:
        for number in (1, 2):
            await zookeeper.create(f"/between/{number}", b"before", make_path=True)
        monkeypatch.setattr(zookeeper, "get_many", read_before_a_change)
        watches = {f"/between/{number}": partial(lambda path, _: fired.append(path), number) for number in (1, 2, 3)}
        await zookeeper.get_many_watched(watches)
        await eventually(lambda: sorted(fired) == [1, 3])
        await zookeeper.set("/between/2", b"after")
        await eventually(lambda: sorted(fired) == [1, 2, 3])
    finally:
        await zookeeper.stop()


async def test_a_watch_that_is_set_repeatedly_is_kept_once_and_gets_each_change(zookeeper_connect: str) -> None:
    zookeeper = ZooKeeper(zookeeper_connect, session_timeout_ms=20_000)
    await zookeeper.start()
    reported: list[Any] = []
    try:
        await zookeeper.ensure_path("/watched")
        for name in ("first", "second"):
            before = len(reported)
            for _ in range(20):
                await zookeeper.children("/watched", watch=reported.append)
                await zookeeper.get("/watched", watch=reported.append)
            client: Any = zookeeper._client
            kept = (client._child_watchers, client._data_watchers)
            assert [sum(map(len, watches.values())) for watches in kept] == [1, 1], kept
            await zookeeper.create(f"/watched/{name}")
            await eventually(lambda known=before: len(reported) > known)
    finally:
        await zookeeper.stop()


async def test_sessions_are_encrypted_and_ended_where_certificates_are_not_those_of_the_site(
    processes: Processes, tmp_path: Path
) -> None:
    identities, others = Identities(tmp_path / "site"), Identities(tmp_path / "others")
    server = ZooKeeperServer(
        name="zookeeper",
        directory=tmp_path / "zookeeper",
        port=free_port(),
        certificate=identities.issue("zookeeper"),
        authority=identities.trusted,
    )
    ZooKeeperProcess(processes, server).wait_serving()

    def options(trusted: Identities, own: Identities) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(trusted.trusted),
            "zookeeper.ssl.keystore.location": str(own.issue("broker")),
        }

    async def session(given: dict[str, str]) -> ZooKeeper:
        protect_zookeeper(given)
        found = ZooKeeper(server.connect, session_timeout_ms=5_000)
        await found.start()
        return found

    try:
        zookeeper = await session(options(identities, identities))
        paths = [f"/states/{number}" for number in range(500)]
        await zookeeper.ensure_path("/states")
        await asyncio.gather(*(zookeeper.create(path, b"x" * 1000) for path in paths))
        assert [node is not None for node in await zookeeper.get_many(paths)] == [True] * len(paths)
        assert len(await asyncio.gather(*map(zookeeper.get, paths))) == len(paths)
        await zookeeper.stop()
        for wrong in ({}, options(others, identities), options(identities, others)):
            protect_zookeeper(wrong)
            stranger = KazooClient(server.connect, **client_options())
            with pytest.raises(KazooTimeoutError):
                await asyncio.to_thread(stranger.start, 2)
            stranger.close()
    finally:
        protect_zookeeper({})
