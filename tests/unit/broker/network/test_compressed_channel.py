"""A compressed connection over a socket that takes little at a time."""

from __future__ import annotations

import asyncio
import random
import socket
from types import SimpleNamespace
from typing import Any

from broker.network.channels import Channel
from broker.network.connections import Connection
from broker.network.frame_receiver import SHARED_BUFFER_BYTES
from broker.network.request_memory import RequestMemory
from tests.support.clock import ManualClock
from wire.protocol.streams.compressed_stream import ChunkUnpacker

ANSWER = random.Random(1).randbytes(600_000)


def server() -> Any:
    return SimpleNamespace(
        loop=asyncio.get_running_loop(),
        clock=ManualClock(),
        memory=RequestMemory(1),
        shared_view=memoryview(bytearray(SHARED_BUFFER_BYTES)),
        connection_closed=lambda connection: None,
    )


async def test_an_answer_is_sent_to_its_last_byte_though_nothing_follows_it() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    for end in (ours, theirs):
        end.setblocking(False)
    connection = Connection(server(), Channel(ours), listener="LINK", address="peer")
    connection.compress(1)
    connection.answer([ANSWER])
    unpacker, received = ChunkUnpacker(), bytearray()
    while len(received) < len(ANSWER):
        piece = await asyncio.get_running_loop().sock_recv(theirs, 2_000)
        received += b"".join(unpacker.unpack(piece))
    assert received == ANSWER
    assert connection.is_idle
    connection.close("done")
    theirs.close()
