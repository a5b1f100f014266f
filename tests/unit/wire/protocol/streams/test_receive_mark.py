"""A receiver wakes once for a good part of a large frame, and never waits for bytes that no client
sends.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from wire.protocol.streams.frame_stream import FrameStream
from wire.protocol.streams.receive_mark import MARK_BYTES_MAX, ReceiveMark

WAIT_S = 60


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with near, far:
            yield near, far


def mark_of(connected: socket.socket) -> int:
    return connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def is_readable(connected: socket.socket, within_s: float) -> bool:
    poll = select.poll()  # select() takes no descriptor above 1,023, and a long run of tests holds more
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def test_readiness_waits_for_what_is_missing(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    ReceiveMark(near).expect(1000)
    far.sendall(bytes(999))
    assert not is_readable(near, 0.05)
    far.sendall(b"\0")
    assert is_readable(near, WAIT_S)


def test_the_end_of_the_stream_is_reported_immediately(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    ReceiveMark(near).expect(1000)
    far.sendall(bytes(10))
    far.shutdown(socket.SHUT_WR)
    assert is_readable(near, WAIT_S)


@pytest.mark.parametrize(("missing_bytes", "mark_bytes"), [(0, 1), (1, 1), (70_000, 70_000), (1 << 28, MARK_BYTES_MAX)])
def test_the_mark_is_never_above_what_is_missing(
    ends: tuple[socket.socket, socket.socket], missing_bytes: int, mark_bytes: int
) -> None:
    mark = ReceiveMark(ends[0])
    mark.expect(500)
    mark.expect(missing_bytes)
    assert mark_of(ends[0]) == mark_bytes


def test_a_system_that_knows_no_marks_costs_no_connection() -> None:
    class Unwilling(socket.socket):
        def setsockopt(self, *_: Any) -> None:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    with Unwilling() as connected:
        ReceiveMark(connected).expect(1000)
        assert mark_of(connected) == 1


@pytest.mark.parametrize("window_bytes", [0, 2048, 65_536])
async def test_a_small_window_is_never_waited_to_hold_more_than_it_can(window_bytes: int) -> None:
    """The frames are larger than what the kernel may hold of them."""
    sent = [bytes([count]) * 300_000 for count in range(1, 6)]
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    stream = FrameStream(
        frame_bytes_max=1 << 24, on_frame=lambda frame: frames.put_nowait(bytes(frame)), on_lost=lambda _: None
    )
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as near:
        if window_bytes:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        near.setblocking(False)
        transport, _ = await loop.create_connection(lambda: stream, sock=near)
        with far:
            whole = b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)
            sending = loop.run_in_executor(None, far.sendall, whole)
            for frame in sent:
                assert await asyncio.wait_for(frames.get(), WAIT_S) == frame
            await sending
        transport.close()


async def test_a_stream_asks_for_no_more_than_its_frame_lacks(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    stream = FrameStream(
        frame_bytes_max=1 << 24, on_frame=lambda frame: frames.put_nowait(bytes(frame)), on_lost=lambda _: None
    )
    near.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: stream, sock=near)
    sent = [bytes([count]) * count * 40_000 for count in (1, 3, 60, 2)]
    loop = asyncio.get_running_loop()
    for frame in sent:
        whole = struct.pack(">i", len(frame)) + frame
        for piece in (whole[:3], whole[3:20_001], whole[20_001:-1], whole[-1:]):
            await loop.run_in_executor(None, far.sendall, piece)
        assert await asyncio.wait_for(frames.get(), WAIT_S) == frame
        assert mark_of(near) == 1
    transport.close()


async def test_a_line_that_brings_single_bytes_wakes_no_receiver_for_each(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    wakes = 0

    class Counted(FrameStream):
        def buffer_updated(self, nbytes: int) -> None:
            nonlocal wakes
            wakes += 1
            super().buffer_updated(nbytes)

    stream = Counted(
        frame_bytes_max=1 << 24, on_frame=lambda frame: frames.put_nowait(bytes(frame)), on_lost=lambda _: None
    )
    near.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: stream, sock=near)
    sent = bytes(range(256)) * 200
    whole = struct.pack(">i", len(sent)) + sent

    def send_bytewise() -> None:
        for position in range(20_000, len(whole)):
            far.sendall(whole[position : position + 1])

    far.sendall(whole[:20_000])
    await loop.run_in_executor(None, send_bytewise)
    assert await asyncio.wait_for(frames.get(), WAIT_S) == sent
    assert wakes < 100
    transport.close()
