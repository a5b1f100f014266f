"""The transport over an encrypted socket, against a real client of TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bridge.access import tls_transport
from bridge.access.tls_connections import EncryptedListeners
from bridge.access.tls_transport import BUFFERED_BYTES_HIGH, TlsTransport
from bridge.metrics import BridgeMetrics
from tests.support.eventually import eventually
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.secured_kafka import Certificates, make_certificates
from wire.tls import handshakes as handshakes_module
from wire.tls.handshakes import TlsHandshakes

LARGE = bytes(range(256)) * 40_000


class Noting(asyncio.Protocol):
    """Records the calls that a server's protocol gets."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_paused = False
        self.pauses = 0
        self.ends: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.is_paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class Pair:
    """A client, and the server's end of its connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, transport: TlsTransport) -> None:
        self.reader, self.writer, self.transport = reader, writer, transport

    @property
    def protocol(self) -> Noting:
        found = self.transport._protocol
        assert isinstance(found, Noting)
        return found


Connect = Callable[[], Awaitable[Pair]]


async def ended(writer: asyncio.StreamWriter) -> None:
    """Wait until the client's socket is closed."""
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("transport") / "certificates")


@pytest.fixture
async def connect(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    monkeypatch.setattr(handshakes_module, "HANDSHAKE_TIMEOUT_S", 120)  # on a busy machine
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.broker)
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    handshakes, loop = TlsHandshakes(), asyncio.get_running_loop()
    pairs: list[Pair] = []
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.setblocking(False)

        async def connected() -> Pair:
            done: asyncio.Future[TlsTransport] = loop.create_future()

            def on_done(tls: ssl.SSLSocket | None, *, is_wrong_certificate: bool) -> None:
                if tls is None:
                    done.set_exception(ConnectionError(f"no handshake, {is_wrong_certificate=}"))
                else:
                    done.set_result(TlsTransport(tls, Noting()))

            opening = asyncio.create_task(
                asyncio.open_connection(*listening.getsockname(), ssl=trusting, server_hostname=LOOPBACK)
            )
            accepted, _ = await loop.sock_accept(listening)
            accepted.setblocking(False)
            handshakes.begin(accepted, context, host="client", port=1, on_done=on_done)
            reader, writer = await opening
            pairs.append(Pair(reader, writer, await done))
            return pairs[-1]

        yield connected
    for pair in pairs:
        pair.writer.close()
        pair.transport.abort()
        await ended(pair.writer)
    await eventually(lambda: all(pair.protocol.ends for pair in pairs))
    await handshakes.stop()


async def test_bytes_go_both_ways_whatever_their_number(connect: Connect) -> None:
    pair = await connect()
    pair.writer.write(LARGE)
    pair.transport.write(LARGE)
    assert await pair.reader.readexactly(len(LARGE)) == LARGE
    await pair.writer.drain()
    await eventually(lambda: pair.protocol.received == LARGE)
    assert pair.transport.get_write_buffer_size() == 0


async def test_a_client_that_takes_nothing_pauses_the_writer_until_it_does(connect: Connect) -> None:
    pair = await connect()
    while not pair.protocol.is_paused:
        pair.transport.write(LARGE)
    assert pair.transport.get_write_buffer_size() > BUFFERED_BYTES_HIGH
    await pair.reader.readexactly(len(LARGE))
    reading = asyncio.create_task(pair.reader.read(-1))
    await eventually(lambda: not pair.protocol.is_paused)
    pair.transport.close()
    await reading
    await eventually(lambda: pair.protocol.ends == [None])


async def test_bytes_written_before_a_close_arrive_and_then_the_end(connect: Connect) -> None:
    pair = await connect()
    pair.transport.write(LARGE)
    pair.transport.close()
    pair.transport.write(b"more")
    assert pair.transport.is_closing()
    assert await pair.reader.read(-1) == LARGE
    await eventually(lambda: pair.protocol.ends == [None])


async def test_nothing_is_handed_over_while_reading_is_paused(connect: Connect) -> None:
    pair = await connect()
    pair.transport.pause_reading()
    pair.writer.write(b"x" * 1000)
    await pair.writer.drain()
    pair.transport.write(b"answer")
    assert await pair.reader.readexactly(6) == b"answer"
    assert not pair.protocol.received
    pair.transport.resume_reading()
    await eventually(lambda: len(pair.protocol.received) == 1000)


async def test_an_end_by_the_client_and_an_abort_are_reported_once(connect: Connect) -> None:
    gone, aborted = await connect(), await connect()
    gone.writer.close()
    await eventually(lambda: len(gone.protocol.ends) == 1)
    aborted.transport.write(LARGE)
    aborted.transport.abort()
    aborted.transport.abort()
    await eventually(lambda: aborted.protocol.ends == [None])
    assert aborted.transport.get_write_buffer_size() == 0


async def test_the_bridge_computes_handshakes_beside_its_loop(certificates: Certificates) -> None:
    threads: list[str] = []

    class Noted(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            threads.append(threading.current_thread().name)
            super().do_handshake(block)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.broker)
    context.sslsocket_class = Noted
    found: Any = SimpleNamespace(context=lambda: context)
    listeners = EncryptedListeners(found, BridgeMetrics(CollectorRegistry()), Noting)
    listening = socket.create_server((LOOPBACK, 0))
    listeners.start([listening])
    try:
        trusting = ssl.create_default_context(cafile=str(certificates.authority))
        _, writer = await asyncio.open_connection(*listening.getsockname(), ssl=trusting, server_hostname=LOOPBACK)
        writer.close()
        await ended(writer)
    finally:
        await listeners.stop()
    assert threads
    assert all(name.startswith("tls-handshake") for name in threads)


async def test_a_client_that_reads_no_more_keeps_no_closed_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "FLUSH_TIMEOUT_S", 0.05)
    pair = await connect()
    pair.writer.transport.pause_reading()
    pair.transport.write(LARGE)
    assert pair.transport.get_write_buffer_size()
    pair.transport.close()
    await eventually(lambda: pair.protocol.ends == [None])
