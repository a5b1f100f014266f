"""kazoo's handler: what is read ahead is not lost, and no socket waits behind another one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest
from kazoo.protocol.states import WatchedEvent

from runtime.zookeeper.handler import PASSED_MAX, BufferedSocket, Delivery, PollingHandler, WatchInbox
from tests.support.eventually import eventually


class Pair:
    """A buffered socket, the peer that writes to it, and a pipe beside them."""

    def __init__(self) -> None:
        own, self.peer = socket.socketpair()
        own.settimeout(10)
        self.own = BufferedSocket(own)
        self.pipe, self.pipe_in = os.pipe()

    def buffer(self, content: bytes) -> None:
        """Have all but the first byte of this in the buffer."""
        self.peer.sendall(content)
        assert self.own.recv(1) == content[:1]
        assert self.own.pending() == len(content) - 1


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.own.close()
    made.peer.close()
    os.close(made.pipe)
    os.close(made.pipe_in)


def test_bytes_that_were_read_ahead_come_in_order_and_then_the_end(pair: Pair) -> None:
    pair.buffer(b"0123456789")
    assert (pair.own.recv(4), pair.own.pending()) == (b"1234", 5)
    pair.peer.sendall(b"ab")
    pair.peer.shutdown(socket.SHUT_WR)
    assert (pair.own.recv(100), pair.own.recv(1), pair.own.recv(9)) == (b"56789", b"a", b"b")
    assert pair.own.recv(1) == b""


def test_a_socket_with_buffered_bytes_is_ready_and_another_one_is_looked_at_now_and_then(pair: Pair) -> None:
    handler = PollingHandler()
    pair.buffer(b"01")
    os.write(pair.pipe_in, b"x")
    found = [handler.select([pair.own, pair.pipe], [], [], 10)[0] for _ in range(PASSED_MAX + 1)]
    assert all(pair.own in ready for ready in found)
    assert pair.pipe in found[-1]


def test_ready_sockets_are_found_and_silent_ones_are_not(pair: Pair) -> None:
    handler = PollingHandler()
    assert handler.select([pair.own, pair.pipe], [], [], 0.01) == ([], [], [])
    assert handler.select([], [pair.own], [], 10) == ([], [pair.own], [])
    pair.peer.sendall(b"0")
    assert handler.select([pair.own, pair.pipe], [], [], 10) == ([pair.own], [], [])
    pair.peer.close()
    assert pair.own.recv(1) == b"0"
    assert handler.select([pair.own], [], [], 10) == ([pair.own], [], []), "the end can be read"
    pair.own.close()
    with pytest.raises(ValueError, match="closed"):
        handler.select([pair.own], [], [], 10)


async def test_watches_are_called_on_the_loop_in_order_also_after_one_that_fails() -> None:
    loop, received = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda *_: received.append("failure"))
    handler, inbox = PollingHandler(), WatchInbox(loop)

    def watch(event: WatchedEvent) -> None:
        assert asyncio.get_running_loop() is loop
        received.append(event.path)
        if event.path == "/1":
            raise ValueError(event.path)

    class Called:
        func = Delivery(inbox, watch)

        def __init__(self, path: str) -> None:
            self.args = (WatchedEvent("CHANGED", "CONNECTED", path),)

    def put() -> None:
        for number in range(4):
            handler.dispatch_callback(Called(f"/{number}"))

    await asyncio.to_thread(put)
    await eventually(lambda: "/3" in received)
    assert [path for path in received if path != "failure"] == ["/0", "/1", "/2", "/3"]
    assert received.count("failure") == 1
