"""Slow and idle connections: connections whose bytes move in small pieces stay open, and
connections without progress are closed.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from broker.network.connection_server import MEMORY_CHECK_INTERVAL_MS, ConnectionServer
from broker.network.connections import Connection
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, framed

pytestmark = pytest.mark.integration

IDLE_MS_MAX = 200
AGES_MS = (IDLE_MS_MAX + 1, MEMORY_CHECK_INTERVAL_MS + IDLE_MS_MAX, IDLE_MS_MAX + 1)
"""Each longer than a connection may be idle; within the second of them all are looked at for
progress.
"""


async def test_a_sender_too_slow_to_wake_the_broker_is_seen_to_move(start: Starter) -> None:
    """Fewer bytes have arrived than make the socket readable. The connection must still count them
    as progress of the request.
    """
    handler = Held()
    handler.is_prompt = True
    server, port = start(handler, clock=ManualClock())  # a look for progress would begin its count anew
    content = b"s" * 200_000
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(content)[:10_000])
    await eventually(lambda: any(connection.holds_memory for connection in server.connections))
    (slow,) = server.connections
    writer.write(content[:5_000])

    await eventually(lambda: slow.receive_now() or slow.progress_bytes == 15_000)
    writer.write(content[15_000 - 4 :])
    assert await reader.readexactly(200_004) == framed(content)
    writer.close()


async def test_idle_connections_are_closed_although_the_end_of_one_fails(start: Starter) -> None:
    server, port = start(Held(), idle_ms_max=200)
    odd_reader, odd = await asyncio.open_connection("127.0.0.1", port)
    await eventually(lambda: server.connections)
    (first,) = server.connections

    def moody() -> None:
        raise ValueError("a defect")

    first.on_end = moody
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    assert await odd_reader.read() == b""
    for each in (odd, writer):
        each.close()


async def idle_for(elapsed_ms: float, clock: ManualClock, port: int) -> None:
    """Let time pass, and the server see to it: a connection that was idle all the while is
    closed.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"a request"))
    await reader.readexactly(len(framed(b"a request")))
    clock.advance(elapsed_ms)
    assert await reader.read() == b""
    writer.close()


async def moved(connection: Connection) -> None:
    """Wait until the server has seen bytes of it since it last looked for progress."""
    await eventually(lambda: connection.progress_bytes)


def only_one(server: ConnectionServer) -> Connection:
    (connection,) = server.connections
    return connection


async def test_a_request_that_is_longer_in_coming_than_a_connection_may_be_idle_is_answered(start: Starter) -> None:
    handler, clock = Held(), ManualClock()
    handler.is_prompt = True
    server, port = start(handler, idle_ms_max=IDLE_MS_MAX, clock=clock)
    whole = framed(b"s" * 200_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(whole[:10_000])
    await eventually(lambda: any(connection.holds_memory for connection in server.connections))
    slow, sent = only_one(server), 10_000
    for age_ms in AGES_MS:
        writer.write(whole[sent : sent + 1000])
        sent += 1000
        await idle_for(age_ms, clock, port)
    writer.write(whole[sent:])
    assert await reader.readexactly(len(whole)) == whole
    assert not slow.is_closed
    writer.close()


async def test_an_answer_that_is_longer_in_going_than_a_connection_may_be_idle_is_sent(start: Starter) -> None:
    handler, clock = Held(), ManualClock()
    handler.is_prompt = True
    server, port = start(handler, idle_ms_max=IDLE_MS_MAX, clock=clock)
    whole = framed(b"a" * 1_000_000)
    with socket.socket() as connecting:
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        connecting.connect(("127.0.0.1", port))
        connecting.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connecting, limit=8192)
        writer.write(whole)
        await eventually(lambda: any(not connection.is_idle for connection in server.connections))
        slow, received = only_one(server), 0
        for age_ms in AGES_MS:
            received += len(await reader.readexactly(100_000))
            await moved(slow)
            await idle_for(age_ms, clock, port)
        assert await reader.readexactly(len(whole) - received) == whole[received:]
        writer.close()


async def test_a_request_of_which_no_more_comes_ends_with_its_connection(start: Starter) -> None:
    handler, clock = Held(), ManualClock()
    handler.is_prompt = True
    server, port = start(handler, idle_ms_max=IDLE_MS_MAX, clock=clock)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"s" * 200_000)[:10_000])
    await eventually(lambda: any(connection.holds_memory for connection in server.connections))
    for age_ms in (MEMORY_CHECK_INTERVAL_MS, MEMORY_CHECK_INTERVAL_MS):
        await idle_for(age_ms, clock, port)
    assert await reader.read() == b""
    writer.close()
