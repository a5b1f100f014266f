"""Requests too large for the shared buffer, over real sockets: one bound for all of them, windows
of any size, slow senders.
"""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from broker.authentication.entrances import Entrances
from broker.authentication.listener_security import read_listener_security
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, framed

pytestmark = pytest.mark.integration


async def test_large_requests_share_one_bound_and_none_is_lost(start: Starter) -> None:
    handler = Held()
    server, port = start(handler, memory_bytes=300_000)
    content = b"y" * 200_000
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
    for _, writer in clients:
        writer.write(framed(content))
    for served in range(1, 5):
        await eventually(lambda: handler.waiting)
        assert server.memory.used_bytes <= 300_000
        handler.answer_next()
        await eventually(lambda served=served: server.memory.waiting_count <= max(3 - served, 0))
    for reader, writer in clients:
        assert await reader.readexactly(200_004) == framed(content)
        writer.close()


@pytest.mark.parametrize("receive_buffer_bytes", [-1, 2048, 65_536])
async def test_requests_of_all_sizes_are_answered_however_they_come(start: Starter, receive_buffer_bytes: int) -> None:
    """Small requests behind large ones, split anywhere, while connections wait for memory and the
    windows are small.
    """
    handler = Held()
    handler.is_prompt = True
    server, port = start(handler, memory_bytes=300_000, receive_buffer_bytes=receive_buffer_bytes)
    chance = random.Random(receive_buffer_bytes)

    async def exchange() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        contents = [chance.randbytes(chance.choice((8, 100, 70_000, 140_000, 280_000))) for _ in range(12)]

        async def send() -> None:
            rest = b"".join(map(framed, contents))
            while rest:
                size = chance.choice((3, 5_000, 66_000, 200_000))
                writer.write(rest[:size])
                await writer.drain()
                rest = rest[size:]

        async def receive() -> None:
            for content in contents:
                assert await reader.readexactly(4 + len(content)) == framed(content)

        await asyncio.gather(send(), receive())
        writer.close()

    await asyncio.gather(*(exchange() for _ in range(4)))
    assert server.memory.used_bytes == 0


async def test_clients_that_have_not_logged_in_hold_nothing_that_requests_of_others_wait_for(start: Starter) -> None:
    """Clients without a password would keep those with one from producing large requests."""
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": 'PlainLoginModule required user_alice="secret";',
    }
    entrances = Entrances(read_listener_security(properties, {"CLIENT": "SASL_PLAINTEXT"}))
    server, port = start(Held(), entrance=entrances.by_listener["CLIENT"])

    async def is_refused(size: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", size) + bytes(500))
        await eventually(lambda: any(one.progress_bytes for one in server.connections) or reader.at_eof())
        assert server.memory.used_bytes == 0
        was_closed = reader.at_eof()
        writer.close()
        await eventually(lambda: not server.connections)
        return was_closed

    assert [await is_refused(size) for size in (1000, 60_000, 70_000, 500_000)] == [False, False, True, True]
