"""After kill -9 the next process ends the sessions that were left behind, instead of waiting until
they expire.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.own_sessions import FILE_NAME, OwnSessions
from runtime.zookeeper.sessions import SessionKey, SessionState
from tests.support.eventually import eventually
from tests.support.processes.ports import free_ports
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]
LONG_SESSION_MS = 60_000


@pytest.fixture
def line(zookeeper_connect: str, toxiproxy: Toxiproxy) -> Proxy:
    """A line to ZooKeeper, for a process that must send nothing while the line is interrupted."""
    return toxiproxy.create("zookeeper", zookeeper_connect.partition("/")[0])


@pytest.fixture
async def former(zookeeper_connect: str, tmp_path: Path, line: Proxy) -> AsyncIterator[ZooKeeper]:
    """A client with an ephemeral node and a note of its session, held for dead from here on."""
    sessions = OwnSessions(zookeeper_connect)
    connect = f"{line.address}/{zookeeper_connect.partition('/')[2]}"
    client = ZooKeeper(connect, session_timeout_ms=LONG_SESSION_MS, note_session=sessions.noting("it"))
    await client.start()
    await sessions.succeed([str(tmp_path)])
    await client.create("/held", is_ephemeral=True)
    yield client
    await client.stop()


async def test_the_owner_of_the_directory_ends_the_sessions_that_are_noted_there(
    zookeeper_connect: str, tmp_path: Path, former: ZooKeeper, line: Proxy
) -> None:
    seen: list[SessionState] = []
    former.on_session(seen.append)
    sessions = OwnSessions(zookeeper_connect)
    client = ZooKeeper(zookeeper_connect, session_timeout_ms=LONG_SESSION_MS, note_session=sessions.noting("it"))
    await client.start()
    try:
        with line.cut_off():
            await sessions.succeed([str(tmp_path)])
        assert await client.exists("/held") is None
        # one that lives after all learns of it, and the session that it begins then is not that of
        # its successor
        await eventually(lambda: seen[-2:] == [SessionState.LOST, SessionState.CONNECTED])
        noted = json.loads((tmp_path / FILE_NAME).read_bytes())["sessions"]
        assert former.session_id != client.session_id
        assert [entry["id"] for entry in noted] in ([client.session_id], [former.session_id])
    finally:
        await client.stop()


async def test_a_zookeeper_that_is_slow_to_answer_is_waited_for(
    zookeeper_connect: str, tmp_path: Path, former: ZooKeeper, line: Proxy, toxiproxy: Toxiproxy
) -> None:
    assert former.session_id
    slow = toxiproxy.create("slow", zookeeper_connect.partition("/")[0])
    slow.add("latency", latency=3_000)
    with line.cut_off():
        await OwnSessions(f"{slow.address}/{zookeeper_connect.partition('/')[2]}").succeed([str(tmp_path)])
    client = ZooKeeper(zookeeper_connect)
    await client.start()
    try:
        assert await client.exists("/held") is None
    finally:
        await client.stop()


async def test_a_session_that_is_over_or_never_was_is_no_hindrance(
    zookeeper_connect: str, tmp_path: Path, former: ZooKeeper
) -> None:
    note = json.loads((tmp_path / FILE_NAME).read_bytes())
    note["sessions"].append({"id": 77, "password": b"x".hex() * 16})
    await former.stop()
    (tmp_path / FILE_NAME).write_text(json.dumps(note))
    sessions = OwnSessions(zookeeper_connect)
    await sessions.succeed([str(tmp_path)])
    assert json.loads((tmp_path / FILE_NAME).read_bytes())["sessions"] == []


async def test_a_broker_that_was_killed_is_back_before_its_session_would_have_expired(
    processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    client, grpc = free_ports(2)
    file = tmp_path / "server.properties"
    settings = {
        "node.id": "1001",
        "listeners": f"CLIENT://127.0.0.1:{client}",
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": f"{zookeeper_connect}/site",
        "zookeeper.session.timeout.ms": str(LONG_SESSION_MS),
        "antipode.site.name": "a",
        "antipode.site.number": "1",
        "antipode.grpc.listener": f"127.0.0.1:{grpc}",
        "antipode.allow.plaintext": "true",
    }
    file.write_text("\n".join(f"{key}={value}" for key, value in settings.items()))
    command = [sys.executable, "-m", "cli.main", "broker", "--config", str(file)]
    broker = processes.run_command("broker", command, tmp_path / "process", {"PYTHONPATH": str(REPOSITORY)})
    broker.wait_logged("broker accepts clients")
    broker.kill()
    broker.start()
    broker.wait_ready(lambda: broker.log_text().count("broker accepts clients") == 2, LONG_SESSION_MS * 0.75)
    broker.stop()
    assert not (tmp_path / "data" / FILE_NAME).exists()


@pytest.mark.parametrize("content", ["", "{", '{"sessions": [{"id": 1}]}', '{"sessions": 3}', "\x00" * 20])
async def test_a_damaged_note_is_not_used(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)

    async def end(_connect: str, key: SessionKey) -> None:
        raise AssertionError(key)

    sessions = OwnSessions("unused", end=end)
    sessions.noting("it")(SessionKey(5, b"secret"))
    await sessions.succeed([str(tmp_path)])
    assert json.loads((tmp_path / FILE_NAME).read_bytes())["sessions"] == [{"id": 5, "password": b"secret".hex()}]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


async def test_a_stop_leaves_the_note_of_a_successor(tmp_path: Path) -> None:
    async def end(_connect: str, _key: SessionKey) -> None:
        return

    first, second = OwnSessions("unused", end=end), OwnSessions("unused", end=end)
    first.noting("it")(SessionKey(5, b"first"))
    await first.succeed([str(tmp_path)])
    second.noting("it")(SessionKey(6, b"second"))
    await second.succeed([str(tmp_path)])
    first.forget()
    assert (tmp_path / FILE_NAME).exists()
    second.forget()
    assert not (tmp_path / FILE_NAME).exists()
