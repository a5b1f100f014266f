"""The reasons for which a TLS connection to a broker cannot be made, with real handshakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.addresses import HostPort
from tests.support.security.identities import Identities
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions, open_connection

LOOPBACK = "127.0.0.1"


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a listener with a certificate of another authority than the client trusts."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Identities(tmp_path / "other").issue("broker"))
    async with await asyncio.start_server(close, LOOPBACK, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def plaintext() -> AsyncIterator[int]:
    """The port of a listener without TLS, which does not understand the client's first bytes."""
    async with await asyncio.start_server(refuse, LOOPBACK) as server:
        yield server.sockets[0].getsockname()[1]


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"not a record of TLS")
    writer.close()


def options(tmp_path: Path) -> ConnectionOptions:
    trusted = Identities(tmp_path / "own").trusted
    return ConnectionOptions(ssl_context=ssl.create_default_context(cafile=trusted))


async def test_a_certificate_that_is_not_trusted_is_reported_with_the_option(encrypted: int, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"certificate is not accepted: .* \(ssl.truststore.location has"):
        await open_connection(HostPort(LOOPBACK, encrypted), options(tmp_path))


async def test_a_listener_without_tls_is_reported_with_the_option(plaintext: int, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"no TLS handshake: .*is the listener encrypted \(security.protocol\)"):
        await open_connection(HostPort(LOOPBACK, plaintext), options(tmp_path))
