"""A whole broker process: faults that end it, and settings that apply before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.main import Broker
from cli.embedding import hosting
from cli.embedding.hosting import run_broker, run_controller, until_ready
from runtime.process import OperationalFailure
from tests.support.processes.ports import free_ports

Daemon = Callable[[Mapping[str, str], asyncio.Event], Awaitable[None]]


def _starting() -> Broker:
    return cast("Broker", SimpleNamespace(ready=asyncio.Event(), failed=asyncio.Event()))


async def test_a_broker_whose_last_directory_fails_while_it_starts_ends() -> None:
    broker = _starting()
    starting = asyncio.create_task(until_ready(broker))
    await asyncio.sleep(0)
    broker.failed.set()
    await asyncio.wait([starting], timeout=5)
    assert starting.done()
    with pytest.raises(OperationalFailure, match="every log directory has failed"):
        starting.result()


async def test_a_broker_that_lets_clients_in_has_started() -> None:
    broker = _starting()
    starting = asyncio.create_task(until_ready(broker))
    broker.ready.set()
    await asyncio.wait([starting], timeout=5)
    assert starting.done()
    starting.result()


def properties(tmp_path: Path, **more: str) -> dict[str, str]:
    """A broker's file with underscores for the dots of the keys in `more`."""
    return {
        "node.id": "1",
        "listeners": "CLIENT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "antipode.site.name": "a",
        "antipode.grpc.listener": "127.0.0.1:0",
        "zookeeper.connect": "none:1",
        "antipode.allow.plaintext": "true",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


@pytest.mark.parametrize("run", [run_broker, run_controller])
async def test_zookeeper_has_as_long_to_answer_as_the_file_says(tmp_path: Path, run: Daemon) -> None:
    (closed,) = free_ports(1)
    given = properties(tmp_path, zookeeper_connect=f"127.0.0.1:{closed}", zookeeper_connection_timeout_ms="150")
    with pytest.raises(OperationalFailure, match=f"ZooKeeper at 127.0.0.1:{closed} does not answer within 150 ms"):
        await run(given, asyncio.Event())


class Reached(Exception):
    """The start has reached the step that the test looks at."""


async def _started(monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str]) -> dict[str, str]:
    """The gRPC address under which each part of a broker process makes itself known."""
    known: dict[str, str] = {}

    async def connect(*_: Any) -> Any:
        return SimpleNamespace()

    class Candidate:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def start(self, *, grpc_address: str) -> None:
            known["controller candidate"] = grpc_address

        async def stop(self) -> None: ...

    async def start(broker: Broker, *, grpc_port: int) -> None:
        broker._ports = {"CLIENT": 9}
        known["broker"] = broker._registration(grpc_port).grpc_address
        raise Reached

    monkeypatch.setattr(hosting, "_connect", connect)
    monkeypatch.setattr(hosting, "ControllerCandidate", Candidate)
    monkeypatch.setattr(hosting.Broker, "start", start)
    monkeypatch.setattr(hosting.Broker, "stop", Candidate.stop)
    with pytest.raises(Reached):
        await run_broker(given, asyncio.Event())
    return known


async def test_the_parts_of_a_process_are_reached_where_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await _started(monkeypatch, properties(tmp_path, antipode_grpc_advertised="broker-1.example:7443"))
    assert known == {"broker": "broker-1.example:7443", "controller candidate": "broker-1.example:7443"}


async def test_a_broker_that_is_no_candidate_has_no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "controller candidate" in await _started(monkeypatch, properties(tmp_path))
    known = await _started(monkeypatch, properties(tmp_path, antipode_controller_candidate="false"))
    assert set(known) == {"broker"}
