"""Handshakes of real sockets: their delay in a storm from another address, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.secured_kafka import Certificates, make_certificates
from wire.tls.handshakes import HANDSHAKES_MAX, TlsHandshakes

GOOD, STORMING = "10.0.0.1", "10.0.0.2"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("handshakes") / "certificates")


class Server:
    """Begins handshakes on pairs of sockets, and notes how they end."""

    def __init__(self, certificates: Certificates) -> None:
        self.handshakes = TlsHandshakes()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(certificates.broker)
        self.trusting = ssl.create_default_context(cafile=str(certificates.authority))
        self.sockets = contextlib.ExitStack()
        self.ended: list[str] = []

    def begin(self, host: str) -> socket.socket:
        """The client's end of a new connection."""
        theirs, ours = socket.socketpair()
        self.sockets.enter_context(theirs)
        theirs.setblocking(False)
        ours.setblocking(False)

        def on_done(tls: ssl.SSLSocket | None, *, is_wrong_certificate: bool) -> None:
            assert not is_wrong_certificate
            self.ended.append(host if tls is not None else f"{host} failed")
            if tls is not None:
                self.sockets.enter_context(tls)

        self.handshakes.begin(ours, self.context, host=host, port=1, on_done=on_done)
        return theirs

    def shake(self, client: ssl.SSLSocket) -> bool:
        """One step of the client; True when its side is done."""
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def tls(self, client: socket.socket) -> ssl.SSLSocket:
        """The client's TLS over its socket."""
        made = self.trusting.wrap_socket(client, server_hostname=LOOPBACK, do_handshake_on_connect=False)
        return self.sockets.enter_context(made)


@pytest.fixture
async def server(certificates: Certificates) -> AsyncIterator[Server]:
    made = Server(certificates)
    with made.sockets:
        yield made
        await made.handshakes.stop()


async def test_a_storm_from_another_address_does_not_end_a_handshake_that_began_before_it(server: Server) -> None:
    client = server.tls(server.begin(GOOD))
    assert not server.shake(client)  # the hello is sent
    await eventually(lambda: server.shake(client))
    # of TLS 1.3 the client is done, and the server has yet to read so
    for _ in range(HANDSHAKES_MAX + 50):
        server.begin(STORMING)
    assert len(server.handshakes) <= HANDSHAKES_MAX
    await eventually(lambda: GOOD in server.ended)
    assert f"{GOOD} failed" not in server.ended


async def test_half_open_handshakes_of_one_address_make_room_the_oldest_first(server: Server) -> None:
    oldest, *_, newest = [server.begin(STORMING) for _ in range(HANDSHAKES_MAX + 1)]
    assert server.ended == [f"{STORMING} failed"]
    assert oldest.recv(1) == b""
    with pytest.raises(BlockingIOError):
        newest.recv(1)


async def test_a_client_that_leaves_without_a_byte_costs_the_thread_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    server.begin(GOOD).close()
    await eventually(lambda: server.ended == [f"{GOOD} failed"])
    assert not started
    assert not len(server.handshakes)


async def test_stop_ends_a_handshake_on_which_the_thread_works(server: Server) -> None:
    client = server.tls(server.begin(GOOD))
    server.shake(client)
    await asyncio.sleep(0)
    await server.handshakes.stop()
    assert server.ended == [f"{GOOD} failed"]
    await eventually(lambda: _is_closed(client))


def _is_closed(client: ssl.SSLSocket) -> bool:
    with contextlib.suppress(ssl.SSLWantReadError):
        try:
            client.do_handshake()
            return client.recv(1) == b""
        except OSError as error:
            return not isinstance(error, ssl.SSLWantReadError)
    return False


async def test_bytes_that_are_no_tls_fail(server: Server) -> None:
    server.begin(GOOD).send(b"GET / HTTP/1.1\r\n\r\n")
    await eventually(lambda: server.ended == [f"{GOOD} failed"])
    assert server.handshakes.failed_count == 1
