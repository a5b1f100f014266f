"""Clients that storm secured listeners: half-open handshakes, bytes that are no TLS, and wrong
passwords at a rate. Others are served meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.network.tls_handshakes import HANDSHAKES_MAX
from runtime.addresses import HostPort
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import PASSWORDS, SecuredBroker, jaas
from tests.support.processes.ports import LOOPBACK
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions, connected
from wire.client.security import load_security, secured

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

METADATA = 3
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture(scope="module")
def broker(session_processes: Any, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    return SecuredBroker(session_processes, tmp_path_factory.mktemp("storms"))


def place(broker: SecuredBroker, listener: str) -> HostPort:
    return HostPort(LOOPBACK, broker.facts["ports"][listener])


async def ask(address: HostPort, options: ConnectionOptions) -> None:
    async with connected(address, options) as connection:
        await connection.call(METADATA, {"topics": ()}, version=1)


def login(user: str, password: str) -> ConnectionOptions:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", user, password),
    }
    return secured(ConnectionOptions(), load_security(given))


async def test_more_half_open_handshakes_than_there_may_be_keep_no_client_out(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    options = ConnectionOptions(ssl_context=broker.context(is_known=False))
    async with connected(address, options) as before:
        with contextlib.ExitStack() as sockets:
            stuck = [sockets.enter_context(socket.create_connection(address)) for _ in range(HANDSHAKES_MAX + 50)]
            for half_open in stuck[::2]:
                half_open.sendall(HALF_A_HELLO)
            await ask(address, options)
            await before.call(METADATA, {"topics": ()}, version=1)
            stuck[0].settimeout(10)
            await eventually(lambda: _is_closed(stuck[0]))  # the oldest have made room
            assert not _is_closed(stuck[-1])


def _is_closed(half_open: socket.socket) -> bool:
    half_open.setblocking(False)
    try:
        return half_open.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_bytes_that_are_no_tls_end_their_connection_alone(broker: SecuredBroker, tmp_path: Path) -> None:
    address = place(broker, "ENCRYPTED")
    for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(500), b"\x16\x03\x01\xff\xff" + b"x" * 200):
        with socket.create_connection(address) as wrong:
            wrong.settimeout(15)
            wrong.sendall(content)
            with contextlib.suppress(ConnectionError):
                while wrong.recv(4096):
                    pass
    await ask(address, ConnectionOptions(ssl_context=broker.context(is_known=False)))


async def test_a_client_of_tls_1_2_is_served_without_a_session_ticket(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    context = broker.context(is_known=False)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    await ask(address, ConnectionOptions(ssl_context=context))
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=LOOPBACK) as tls:
        assert tls.version() == "TLSv1.2"
        assert tls.session is None or not tls.session.has_ticket


async def test_wrong_passwords_at_a_rate_leave_others_served(broker: SecuredBroker) -> None:
    address, right = place(broker, "LOGIN"), login("alice", PASSWORDS["alice"])
    refused = 0

    async def try_passwords(number: int) -> None:
        nonlocal refused
        for attempt in range(5):
            with pytest.raises(Unreachable, match="Invalid username or password"):
                await ask(address, login("alice", f"wrong-{number}-{attempt}"))
            refused += 1

    async with asyncio.TaskGroup() as storm:
        for number in range(20):
            storm.create_task(try_passwords(number))
        for _ in range(20):
            await ask(address, right)
    assert refused == 100
