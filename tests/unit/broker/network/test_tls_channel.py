"""The bytes that an encrypted connection receives at a time."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.network.tls_channel import TlsChannel
from runtime.configuration import load_settings
from tests.support.security.identities import Identities
from wire.tls.read_ahead import read_ahead
from wire.tls.server_settings import ServerTlsSettings

RECORDS, RECORD = 200, b"a record of Kafka"


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path)


@pytest.fixture
def identity(identities: Identities) -> ssl.SSLContext:
    """A listener's context that reads ahead, as those of a broker do."""
    settings = load_settings(ServerTlsSettings, {"ssl.keystore.location": str(identities.issue("broker"))})
    context = settings.server_context()
    assert read_ahead(context)
    return context


@pytest.fixture
def trusting(identities: Identities) -> ssl.SSLContext:
    """A client's context."""
    return ssl.create_default_context(cafile=str(identities.trusted))


@pytest.fixture
def ends(identity: ssl.SSLContext, trusting: ssl.SSLContext) -> Iterator[tuple[ssl.SSLSocket, TlsChannel]]:
    """A client, and the channel of a broker after the handshake."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    server = identity.wrap_socket(far, server_side=True, do_handshake_on_connect=False)
    client = trusting.wrap_socket(near, server_hostname="localhost", do_handshake_on_connect=False)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    client.setblocking(True)
    with client:
        channel = TlsChannel(server)
        yield client, channel
        channel.close()


def test_the_small_records_of_a_large_frame_are_received_together(ends: tuple[ssl.SSLSocket, TlsChannel]) -> None:
    client, channel = ends
    for _ in range(RECORDS):
        client.sendall(RECORD)
    buffer = memoryview(bytearray(1 << 20))
    assert channel.receive_into(buffer) == RECORDS * len(RECORD)
    assert bytes(buffer[: RECORDS * len(RECORD)]) == RECORD * RECORDS
    with pytest.raises(BlockingIOError):
        channel.receive_into(buffer)


def test_no_more_is_received_than_there_is_room_for(ends: tuple[ssl.SSLSocket, TlsChannel]) -> None:
    client, channel = ends
    for _ in range(3):
        client.sendall(RECORD)
    room = memoryview(bytearray(2 * len(RECORD)))
    assert channel.receive_into(room) == len(room)
    assert channel.receive_into(memoryview(bytearray(100))) == len(RECORD)


def test_the_end_of_the_stream_after_a_record_is_seen_by_the_next_receive(
    ends: tuple[ssl.SSLSocket, TlsChannel],
) -> None:
    client, channel = ends
    client.sendall(RECORD)
    with contextlib.suppress(ssl.SSLError):
        client.setblocking(False)
        client.unwrap()
    buffer = memoryview(bytearray(1 << 10))
    assert channel.receive_into(buffer) == len(RECORD)
    assert channel.receive_into(buffer) == 0


def test_bytes_that_openssl_holds_without_a_readable_socket_count_as_received(
    ends: tuple[ssl.SSLSocket, TlsChannel],
) -> None:
    client, channel = ends
    for _ in range(3):
        client.sendall(RECORD)
    assert channel.receive_into(memoryview(bytearray(len(RECORD)))) == len(RECORD)
    assert not select.select([channel.fd], [], [], 0)[0]
    assert channel.has_received
    assert channel.receive_into(memoryview(bytearray(100))) == 2 * len(RECORD)
    assert not channel.has_received


def test_a_request_that_came_with_the_end_of_the_handshake_counts_as_received(
    identity: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    server = identity.wrap_socket(far, server_side=True, do_handshake_on_connect=False)
    client = trusting.wrap_socket(near, server_hostname="localhost", do_handshake_on_connect=False)
    with client:
        for end in (client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        # the client is done before the server, and sends at once
        client.sendall(RECORD)
        server.do_handshake()
        channel = TlsChannel(server)
        assert not select.select([channel.fd], [], [], 0)[0]
        assert channel.has_received
        assert channel.receive_into(memoryview(bytearray(100))) == len(RECORD)
        channel.close()
