"""Whether anything still listens somewhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from runtime import listening
from runtime.listening import until_refused
from tests.support.eventually import eventually
from tests.support.processes.ports import LOOPBACK, free_port


class Listener:
    """Accepts connections on a port of its own until it is closed, and can close those that it
    has.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError):
            await reader.read()

    def drop_connections(self) -> None:
        for writer in self.writers:
            writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_connections()
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


async def test_a_listener_that_is_gone_is_noticed_by_the_connection_that_breaks() -> None:
    listener, suspected_brokers = Listener(), list[bool]()
    await listener.open()
    watching = asyncio.create_task(until_refused(listener.address, on_suspicion=suspected_brokers.append))
    await eventually(lambda: listener.writers)
    await listener.close()
    await asyncio.wait_for(watching, 60)
    assert suspected_brokers == [False, True]


async def test_a_connection_that_breaks_alone_proves_nothing() -> None:
    listener, suspected_brokers = Listener(), list[bool]()
    await listener.open()
    watching = asyncio.create_task(until_refused(listener.address, on_suspicion=suspected_brokers.append))
    await eventually(lambda: listener.writers)
    listener.drop_connections()
    await eventually(lambda: len(listener.writers) == 2)
    await eventually(lambda: suspected_brokers == [False, True, False])
    assert not watching.done()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    await listener.close()


async def test_a_dying_process_that_takes_one_more_connection_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "UNKNOWN_PAUSE_S", 3600.0)
    listener = Listener()
    await listener.open()
    watching = asyncio.create_task(until_refused(listener.address))
    await eventually(lambda: listener.writers)
    listener.drop_connections()
    await eventually(lambda: len(listener.writers) == 2)
    await listener.close()
    await asyncio.wait_for(watching, 60)


async def test_an_address_that_never_listened_is_detected_immediately() -> None:
    await asyncio.wait_for(until_refused(f"{LOOPBACK}:{free_port()}"), 60)


async def test_an_address_that_makes_no_sense_says_nothing() -> None:
    watching = asyncio.create_task(until_refused("nowhere"))
    done, _ = await asyncio.wait({watching}, timeout=0.05)
    assert not done
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def test_a_name_that_no_host_can_have_is_no_refusal() -> None:
    watching = asyncio.create_task(until_refused("a..b:1"))
    await asyncio.wait([watching], timeout=0.2)
    assert not watching.done()
    watching.cancel()
