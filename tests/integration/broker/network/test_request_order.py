"""Requests on one connection: the order of their responses, which of them a handler may have
concurrently, and back-pressure.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from broker.network.connection_owner import Frame
from broker.network.connections import Connection
from broker.network.response_slots import SLOTS_MAX, Place
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, framed

pytestmark = pytest.mark.integration

TOGETHER = b"together"
"""As a request begins: with its API key."""


class Together:
    """Handles frames that begin with `TOGETHER` concurrently, the others alone; answers each with
    its own bytes on request.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[Connection | Place, bytes]] = []
        self.is_prompt = False
        self.prompt_count = 0
        self.keeps_frames = True
        self.given_up: list[bytes] = []

    def handle(self, connection: Connection, frame: Frame) -> None:
        content = bytes(frame)
        if self.is_prompt:
            self.prompt_count += 1
            connection.answer([framed(content)])
        elif content.startswith(TOGETHER):
            kept_bytes = len(content) if self.keeps_frames else 0
            (api_key,) = struct.unpack_from(">h", TOGETHER)
            place = connection.reserve_slot(api_key, kept_bytes, lambda: self.given_up.append(content))
            self.waiting.append((place, content))
        else:
            self.waiting.append((connection, content))

    def answer(self, waiting: tuple[Connection | Place, bytes]) -> None:
        self.waiting.remove(waiting)
        waiting[0].answer([framed(waiting[1])])


async def test_pipelined_requests_are_answered_in_their_order_one_at_a_time(start: Starter) -> None:
    handler = Held()
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    contents = [b"request-%02d" % number for number in range(20)]
    writer.write(b"".join(map(framed, contents)))
    for content in contents:
        await eventually(lambda: handler.waiting)
        assert [waiting for _, waiting in handler.waiting] == [content]
        handler.answer_next()
        assert await reader.readexactly(4 + len(content)) == framed(content)
    writer.close()


async def test_concurrent_requests_are_answered_in_their_order_and_others_wait_for_them(
    start: Starter,
) -> None:
    handler = Together()
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    contents = [TOGETHER + b"-%02d" % number for number in range(20)] + [b"something else", TOGETHER + b" again"]
    writer.write(b"".join(map(framed, contents)))
    await eventually(lambda: len(handler.waiting) == 20)
    for _ in range(19):
        handler.answer(handler.waiting[-1])
    writer.write(framed(TOGETHER + b" at last"))
    assert [content for _, content in handler.waiting] == contents[:1]
    handler.answer(handler.waiting[0])
    assert await reader.readexactly(4 * 20 + sum(map(len, contents[:20]))) == b"".join(map(framed, contents[:20]))
    await eventually(lambda: [content for _, content in handler.waiting] == [b"something else"])
    handler.answer(handler.waiting[0])
    await eventually(lambda: len(handler.waiting) == 2)
    for waiting in tuple(handler.waiting):
        handler.answer(waiting)
    rest = b"".join(map(framed, (*contents[20:], TOGETHER + b" at last")))
    assert await reader.readexactly(len(rest)) == rest
    writer.close()


async def test_an_immediate_refusal_is_sent_after_the_responses_to_earlier_requests(start: Starter) -> None:
    handler = Together()
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(TOGETHER + b" 1"))
    await eventually(lambda: handler.waiting)
    handler.is_prompt = True
    writer.write(framed(TOGETHER + b" 2") + framed(TOGETHER + b" 3"))
    await eventually(lambda: handler.prompt_count == 2)
    handler.answer(handler.waiting[0])
    wanted = b"".join(framed(TOGETHER + b" %d" % number) for number in (1, 2, 3))
    assert await reader.readexactly(len(wanted)) == wanted
    writer.close()


async def test_the_number_of_concurrent_requests_is_bounded_however_the_bytes_come(start: Starter) -> None:
    handler = Together()
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    contents = [TOGETHER + b"%03d" % number for number in range(2 * SLOTS_MAX)]
    sent = b"".join(map(framed, contents))
    for at in range(0, len(sent), 7):
        writer.write(sent[at : at + 7])
        await asyncio.sleep(0)
    answered = []
    while len(answered) < len(contents):
        await eventually(lambda: handler.waiting)
        assert len(handler.waiting) <= SLOTS_MAX
        for waiting in tuple(handler.waiting):
            handler.answer(waiting)
            answered.append(waiting[1])
    assert answered == contents
    assert await reader.readexactly(len(sent)) == sent
    writer.close()


async def test_concurrent_requests_are_bounded_in_bytes_and_a_large_one_waits_for_small_ones(
    start: Starter,
) -> None:
    handler = Together()
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sizes = [20_000, 30_000, 40_000, 100_000, 10]
    contents = [TOGETHER + b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    for content in contents:
        writer.write(framed(content))
    answered = []
    for together in (contents[:2], contents[2:3], contents[3:4], contents[4:]):
        await eventually(lambda wanted=together: [content for _, content in handler.waiting] == wanted)
        for waiting in tuple(handler.waiting):
            handler.answer(waiting)
            answered.append(waiting[1])
    assert answered == contents
    wanted = b"".join(map(framed, contents))
    assert await reader.readexactly(len(wanted)) == wanted
    writer.close()


async def test_requests_whose_frames_are_released_are_concurrent_at_any_size(start: Starter) -> None:
    handler = Together()
    handler.keeps_frames = False
    _, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sizes = [10, 200_000, 30_000, 500_000, 10]
    contents = [TOGETHER + b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    for content in contents:
        writer.write(framed(content))
    await eventually(lambda: [content for _, content in handler.waiting] == contents)
    for waiting in handler.waiting[::-1]:
        handler.answer(waiting)
    wanted = b"".join(map(framed, contents))
    assert await reader.readexactly(len(wanted)) == wanted
    writer.close()


async def test_waiting_handlers_learn_that_their_client_has_disconnected(start: Starter) -> None:
    handler = Together()
    server, port = start(handler)
    _, gone = await asyncio.open_connection("127.0.0.1", port)
    contents = [TOGETHER + b" a", TOGETHER + b" b", TOGETHER + b" c"]
    gone.write(b"".join(map(framed, contents)))
    await eventually(lambda: len(handler.waiting) == len(contents))
    handler.answer(handler.waiting[1])
    gone.close()
    await eventually(lambda: not server.connections)
    assert handler.given_up == [contents[0], contents[2]]


async def test_a_stop_answers_concurrent_requests_and_skips_a_client_that_has_disconnected(start: Starter) -> None:
    handler = Together()
    server, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _, gone = await asyncio.open_connection("127.0.0.1", port)
    gone.write(framed(TOGETHER + b" a") + framed(TOGETHER + b" b"))
    await eventually(lambda: len(handler.waiting) == 2)
    lost = tuple(handler.waiting)
    handler.answer(lost[1])
    gone.close()
    await eventually(lambda: len(server.connections) == 1)
    writer.write(framed(TOGETHER + b" 1") + framed(TOGETHER + b" 2"))
    await eventually(lambda: len(handler.waiting) == 3)
    handler.answer(lost[0])
    stopping = asyncio.ensure_future(server.stop(grace_s=30))
    for waiting in tuple(handler.waiting):
        assert not stopping.done()
        handler.answer(waiting)
    assert await reader.read() == framed(TOGETHER + b" 1") + framed(TOGETHER + b" 2")
    await stopping
    writer.close()


async def test_the_broker_stops_reading_from_a_client_that_does_not_read(start: Starter) -> None:
    handler = Held()
    handler.is_prompt = True
    server, port = start(handler)
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    client.setblocking(False)
    other_reader, other = await asyncio.open_connection("127.0.0.1", port)
    sent, rounds_without_room = 0, 0
    request = framed(b"x" * 4000)

    def is_refused_for_long() -> bool:
        nonlocal sent, rounds_without_room
        before = sent
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += client.send(request)
        rounds_without_room = rounds_without_room + 1 if sent == before else 0
        return rounds_without_room > 20

    await eventually(is_refused_for_long)
    # the kernel's buffers of both sides are all that was taken: nothing piles up in the broker
    assert sent < 32 * (1 << 20)
    (slow,) = [connection for connection in server.connections if not connection.is_idle]
    assert slow.address == f"127.0.0.1:{client.getsockname()[1]}"
    other.write(framed(b"still served"))
    assert await other_reader.readexactly(16) == framed(b"still served")
    client.close()
    other.close()
