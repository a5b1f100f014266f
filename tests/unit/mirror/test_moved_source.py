"""A mirror whose link has another source begins anew: it appends nothing from the old source under
the new epoch, and reads at the addresses of the new one.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mirror import running
from mirror.flow.followed_link import FollowedLink, MustBeginAnew, SourceMoved
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView, stand
from mirror.main import source_bootstrap
from mirror.settings.config import load_config
from runtime.addresses import parse_host_ports
from runtime.process import OperationalFailure
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite

IN_FILE = parse_host_ports("a-in-file:9093")


def view(source: str, *, epoch: int, replaced: str = "") -> LinkView:
    record = LinkRecord(
        name="a-c",
        source_site=source,
        target_site="c",
        active_site=source,
        epoch=epoch,
        phase=LinkPhase.MIRRORING,
        replaced_site=replaced,
        sites={site: LinkSite(bootstrap_servers=f"{site}:9093") for site in "abc"},
    )
    return stand(record, "c")


def followed(link: KnownLink, found: list[MustBeginAnew]) -> FollowedLink:
    board: Any = SimpleNamespace(
        rows=list, restless_rows=list, promoted_rows=list, rows_to_turn=lambda _: [], lines_together=nullcontext
    )

    async def read() -> LinkView:
        raise AssertionError("nothing is read")

    return FollowedLink(board, link, read=read, interval_ms=1, on_turned=lambda: None, on_moved=found.append)


def test_another_source_ends_the_mirror_with_the_link_as_it_was() -> None:
    found: list[MustBeginAnew] = []
    link = KnownLink(view("a", epoch=1))
    following = followed(link, found)
    following._apply(view("a", epoch=2))
    assert (link.view.epoch, found) == (2, [])
    following._apply(view("b", epoch=3, replaced="a"))
    (moved,) = found
    assert str(moved) == "link a-c has source b at epoch 3"
    assert (link.view.epoch, link.view.source_site) == (2, "a")


def test_addresses_in_the_file_are_those_of_the_site_that_the_link_was_made_with() -> None:
    assert source_bootstrap(view("a", epoch=1), configured=IN_FILE) == IN_FILE
    assert source_bootstrap(view("a", epoch=1), configured=()) == parse_host_ports("a:9093")
    assert source_bootstrap(view("b", epoch=2, replaced="a"), configured=IN_FILE) == parse_host_ports("b:9093")
    assert source_bootstrap(view("a", epoch=3), configured=IN_FILE) == IN_FILE


class Daemon:
    """Each daemon fails with the next of the given errors."""

    failures: list[Exception | None]
    started = stopped = 0

    def __init__(self, *_: object, registry: object, **__: object) -> None:
        self.registry = registry
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        Daemon.started += 1
        failure = Daemon.failures.pop(0)
        if failure is not None:
            self.failed.set_result(failure)

    async def stop(self) -> None:
        Daemon.stopped += 1


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> type[Daemon]:
    monkeypatch.setattr(running, "MirrorDaemon", Daemon)
    Daemon.started = Daemon.stopped = 0
    return Daemon


CONFIG = load_config({"link.name": "a-c", "site.agents": "127.0.0.1:1"})


async def test_the_process_goes_on_with_a_new_daemon(daemons: type[Daemon]) -> None:
    daemons.failures = [SourceMoved("to b"), SourceMoved("back to a"), None]
    stop = asyncio.Event()
    run = asyncio.create_task(running.run(CONFIG, stop))
    await eventually(lambda: daemons.started == 3)
    assert not stop.is_set()
    stop.set()
    await run
    assert (daemons.started, daemons.stopped) == (3, 3)


async def test_another_failure_ends_the_process(daemons: type[Daemon]) -> None:
    daemons.failures = [SourceMoved("to b"), OperationalFailure("no link")]
    stop = asyncio.Event()
    with pytest.raises(OperationalFailure, match="no link"):
        await running.run(CONFIG, stop)
    assert stop.is_set()
    assert daemons.stopped == 2
