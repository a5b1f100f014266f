"""The clones of a rehearsal. Promised: one that is stopped while it clones logs removes all clones,
also those still to come; a failing ZooKeeper keeps none; what the system refuses is one message.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from cli.recovery.rehearsing import local_sandbox
from cli.recovery.rehearsing import site as rehearsed_site
from cli.recovery.rehearsing.clones import data_directory, sandbox_directory
from cli.recovery.rehearsing.local_sandbox import LocalSandbox, one_at_a_time
from runtime.process import OperationalFailure
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkRecord


class SlowClones:
    """Clones when the test says so."""

    def __init__(self, directories: list[str]) -> None:
        self._directories = directories
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def clone(self, *_: Any) -> None:
        self.has_begun.set()
        self.may_go_on.wait(10)
        data_directory(self._directories[0]).mkdir(parents=True)


@asynccontextmanager
async def no_zookeeper(_: str) -> AsyncIterator[None]:
    yield None


async def nothing(*_: Any) -> dict[str, Any]:
    return {}


async def test_no_clone_is_left_when_a_rehearsal_is_stopped_while_it_clones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SimpleNamespace(stop=lambda: False)
    for name, replaced in (
        ("SandboxSite", lambda *_: site),
        ("CloneWork", SlowClones),
        ("LogPlaces", lambda _: None),
        ("zookeeper_at", no_zookeeper),
        ("read_topics", nothing),
        ("remove_chroot", nothing),
    ):
        monkeypatch.setattr(local_sandbox, name, replaced)
    settings = SimpleNamespace(log_dirs=[str(tmp_path)], zookeeper_connect="")
    brokers: Any = [SimpleNamespace(settings=settings)]
    sandbox = LocalSandbox(brokers)
    clones: Any = sandbox._clones
    cloning = asyncio.create_task(sandbox.clone(LinkRecord(), {}))
    await eventually(clones.has_begun.is_set)
    cloning.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not cloning.done(), "the clones would be removed while others are still made"
    clones.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await cloning
    await sandbox.drop()
    assert not sandbox_directory(str(tmp_path)).exists()


async def test_a_zookeeper_that_fails_keeps_no_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, _: str) -> None: ...

        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        async def delete(self, *_: Any, **__: Any) -> None:
            raise ConnectionLoss

    monkeypatch.setattr(rehearsed_site, "ZooKeeper", Failing)
    monkeypatch.setattr(local_sandbox, "SandboxSite", lambda *_: SimpleNamespace(stop=lambda: False))
    settings = SimpleNamespace(log_dirs=[str(tmp_path)], zookeeper_connect="z:1")
    brokers: Any = [SimpleNamespace(settings=settings)]
    data_directory(str(tmp_path)).mkdir(parents=True)
    with pytest.raises(OperationalFailure, match="ZooKeeper at z:1: ConnectionLoss"):
        await LocalSandbox(brokers).drop()
    assert not sandbox_directory(str(tmp_path)).exists()


async def test_a_log_directory_that_cannot_be_written_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, replaced in (("LogPlaces", lambda _: None), ("zookeeper_at", no_zookeeper), ("read_topics", nothing)):
        monkeypatch.setattr(local_sandbox, name, replaced)
    monkeypatch.setattr(local_sandbox, "SandboxSite", lambda *_: SimpleNamespace(stop=lambda: False))
    sandbox_directory(str(tmp_path)).touch()
    settings = SimpleNamespace(log_dirs=[str(tmp_path)], zookeeper_connect="")
    brokers: Any = [SimpleNamespace(settings=settings)]
    with pytest.raises(OperationalFailure, match=r"the logs cannot be cloned: .*Not a directory"):
        await LocalSandbox(brokers).clone(LinkRecord(), {})
    with pytest.raises(OperationalFailure, match="cannot be used: No such file"), one_at_a_time(f"{tmp_path}/none"):
        pass
