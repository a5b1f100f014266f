"""Responses that must not leave any more when their turn comes."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from broker.network.channels import Channel
from broker.network.connections import Connection
from broker.network.frame_receiver import SHARED_BUFFER_BYTES
from broker.network.request_memory import RequestMemory
from tests.support.clock import ManualClock

API_KEY = 0
FIRST, SECOND = b"first answer", b"second answer"


class Asked:
    """The request of a response."""

    def __init__(self) -> None:
        self.is_allowed = True

    def may_be_sent(self) -> bool:
        """As the test says."""
        return self.is_allowed

    def sent(self, began_ms: float, ended_ms: float) -> None:
        """Nothing is measured."""


async def received_after_waiting(*, is_allowed: bool) -> bytes:
    """What a client receives whose second request was answered long before the first one.
    `is_allowed`: the second response may still leave when the first one is there.
    """
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    loop, asked = asyncio.get_running_loop(), Asked()
    server: Any = SimpleNamespace(
        loop=loop,
        clock=ManualClock(),
        memory=RequestMemory(1),
        shared_view=memoryview(bytearray(SHARED_BUFFER_BYTES)),
        connection_closed=lambda _: None,
    )
    connection = Connection(server, Channel(ours), listener="CLIENT", address="client")
    first, second = connection.reserve_slot(API_KEY, 0), connection.reserve_slot(API_KEY, 0)
    second.answer([SECOND], on_sent=asked)
    asked.is_allowed = is_allowed
    first.answer([FIRST], on_sent=Asked())
    received = await loop.sock_recv(theirs, 100)
    connection.close("done")
    theirs.close()
    return received


async def test_a_response_whose_time_is_over_does_not_leave_behind_an_earlier_one() -> None:
    assert await received_after_waiting(is_allowed=True) == FIRST + SECOND
    assert await received_after_waiting(is_allowed=False) == b"", "the connection closes"
