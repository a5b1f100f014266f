"""The network layer over real sockets, with handlers that the test controls: order, failures,
back-pressure, limits, draining.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from broker.dispatch import Dispatcher
from broker.handlers.registry import EntityHandler
from broker.metrics import BrokerMetrics
from broker.network.connection_owner import Frame
from broker.network.connections import Connection
from broker.network.response_slots import SLOTS_MAX, Place
from broker.quotas.client_throttling import Quotas
from broker.quotas.core.connection_rates import ConnectionRates
from broker.settings.loading import load_broker_settings
from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, connection_servers, framed
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.protocol.streams.frames import VersionRange

pytestmark = pytest.mark.integration

LIST_GROUPS, API_VERSIONS = 16, 18
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


@pytest.fixture
async def start() -> AsyncIterator[Starter]:
    async with connection_servers() as begin:
        yield begin


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


async def test_requests_that_may_be_handled_together_are_answered_in_their_order_and_others_wait_for_them(
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


async def test_what_is_refused_at_once_is_answered_behind_what_came_before(start: Starter) -> None:
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


async def test_no_more_than_so_many_are_handled_together_however_the_bytes_come(start: Starter) -> None:
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


async def test_what_is_handled_together_is_bounded_in_bytes_and_a_large_request_waits_for_the_small_ones(
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


async def test_requests_of_which_nothing_is_kept_are_handled_together_whatever_their_size(start: Starter) -> None:
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


async def test_whoever_waits_for_a_client_that_goes_is_told_unless_the_answer_was_there(start: Starter) -> None:
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


async def test_a_stop_answers_what_is_handled_together_and_a_client_that_goes_costs_nothing(start: Starter) -> None:
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


async def test_who_does_not_read_is_not_read_from(start: Starter) -> None:
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


async def test_a_request_beyond_the_limit_costs_its_connection_only(start: Starter) -> None:
    handler = Held()
    handler.is_prompt = True
    _, port = start(handler, request_bytes_max=5000)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    other_reader, other = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">i", 5001) + b"z" * 100)
    assert await reader.read() == b""
    other.write(framed(b"z" * 5000))
    assert len(await other_reader.readexactly(5004)) == 5004
    writer.close()
    other.close()


async def test_an_override_beats_the_limit_by_address_and_changes_while_running(start: Starter) -> None:
    server, port = start(Held(), connections_per_address_max=5, connections_per_address_overrides={"127.0.0.1": 1})
    _, first = await asyncio.open_connection("127.0.0.1", port)
    refused, second = await asyncio.open_connection("127.0.0.1", port)
    assert await refused.read() == b""
    assert server.refused_count == 1
    server.limits = replace(server.limits, connections_per_address_overrides={})
    _, third = await asyncio.open_connection("127.0.0.1", port)
    await eventually(lambda: len(server.connections) == 2)
    for writer in (first, second, third):
        writer.close()


async def answers(client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    reader, writer = client
    try:
        writer.write(framed(b"12345678"))
        return await reader.readexactly(12) == framed(b"12345678")
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def test_connections_beyond_the_limit_wait_until_one_closes(start: Starter) -> None:
    handler = Held()
    handler.is_prompt = True
    server, port = start(handler, connections_max=2)
    with capture_logs() as said:
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        assert await answers(clients[0])
        assert await answers(clients[1])
        waiting = [asyncio.ensure_future(answers(client)) for client in clients[2:]]
        await eventually(lambda: bool(said))
        assert len(server.connections) == 2
        assert not any(answered.done() for answered in waiting)
        for number, answered in enumerate(waiting):
            clients[number][1].close()
            assert await answered
    assert len(server.connections) <= 2
    assert server.refused_count == 0
    assert [line["key"] for line in said if line["log_level"] == "warning"] == ["max.connections"]
    for _, writer in clients:
        writer.close()


async def test_another_limit_lets_those_in_that_wait_or_ends_the_longest_unused(start: Starter) -> None:
    handler = Held()
    handler.is_prompt = True
    server, port = start(handler, connections_max=1)
    first = await asyncio.open_connection("127.0.0.1", port)
    assert await answers(first)
    second = await asyncio.open_connection("127.0.0.1", port)
    waiting = asyncio.ensure_future(answers(second))
    await eventually(lambda: server._waiting_for_room)
    server.limits = replace(server.limits, connections_max=2)
    assert await waiting
    assert await answers(first)
    server.limits = replace(server.limits, connections_max=1)
    assert await second[0].read() == b""
    assert await answers(first)
    for _, writer in (first, second):
        writer.close()


async def test_the_listener_between_brokers_takes_its_own_and_ends_another_listeners_longest_unused(
    start: Starter,
) -> None:
    handler = Held()
    server, port = start(handler, connections_max=2, exempt_listener="BROKERS")
    own_port = server._listening[-1].getsockname()[1]
    busy = await asyncio.open_connection("127.0.0.1", port)
    busy[1].write(framed(b"12345678"))
    await eventually(lambda: handler.waiting)
    idle = await asyncio.open_connection("127.0.0.1", port)
    await eventually(lambda: len(server.connections) == 2)
    brokers = [await asyncio.open_connection("127.0.0.1", own_port)]
    assert await idle[0].read() == b""
    brokers += [await asyncio.open_connection("127.0.0.1", own_port) for _ in range(2)]
    assert await busy[0].read() == b""
    await eventually(lambda: [connection.listener for connection in server.connections] == ["BROKERS"] * 3)
    handler.waiting.clear()
    handler.is_prompt = True
    assert all([await answers(broker) for broker in brokers])
    late = await asyncio.open_connection("127.0.0.1", port)
    waiting = asyncio.ensure_future(answers(late))
    for _, writer in brokers[:2]:
        writer.close()
    assert await waiting
    for _, writer in (busy, idle, late, *brokers):
        writer.close()


async def test_a_stop_answers_all_that_has_come_and_takes_no_new_connection(start: Starter) -> None:
    handler = Held()
    server, port = start(handler)
    busy_reader, busy = await asyncio.open_connection("127.0.0.1", port)
    idle_reader, idle = await asyncio.open_connection("127.0.0.1", port)
    busy.write(framed(b"in flight") + framed(b"behind it"))
    await eventually(lambda: handler.waiting and len(server.connections) == 2)
    stopping = asyncio.ensure_future(server.stop(grace_s=30))
    assert await idle_reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not stopping.done()
    handler.answer_next()
    await eventually(lambda: handler.waiting)
    handler.answer_next()
    assert await busy_reader.read() == framed(b"in flight") + framed(b"behind it")
    await stopping
    for writer in (busy, idle):
        writer.close()


async def test_a_handler_that_never_answers_holds_a_stop_up_for_the_grace_alone(start: Starter) -> None:
    handler = Held()
    server, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"lost cause"))
    await eventually(lambda: handler.waiting)
    await server.stop(grace_s=0.05)
    assert await reader.read() == b""
    writer.close()


async def test_a_failing_handler_is_answered_with_its_error_and_the_connection_lives(
    start: Starter,
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    metrics = BrokerMetrics()
    clock = SystemClock()
    settings = {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": "none", "zookeeper.connect": "none:1"}
    quotas = Quotas(load_broker_settings(settings), clock)
    handlers = {LIST_GROUPS: EntityHandler(VersionRange(4, 4), None, broken)}
    dispatcher = Dispatcher(handlers, authorizer=NO_AUTHORIZER, quotas=quotas, metrics=metrics, clock=clock)
    _, port = start(dispatcher)

    def talk() -> tuple[Any, Any]:
        with RawClient(port) as client:
            failed = client.call(LIST_GROUPS, 4, {"states_filter": []})
            return failed, client.call(LIST_GROUPS, 4, {"states_filter": []})

    failed, again = await asyncio.to_thread(talk)
    assert failed.error_code is ErrorCode.unknown_server_error
    assert again.error_code is ErrorCode.unknown_server_error
    assert metrics.api("ListGroups").errors == {ErrorCode.unknown_server_error: 2}


async def test_an_address_that_connects_too_fast_is_refused_after_a_moment_and_may_come_again(start: Starter) -> None:
    rates = ConnectionRates(samples=2, window_ms=500)
    rates.take({(("ip", "127.0.0.1"),): {"connection_creation_rate": 4.0}})
    held = Held()
    held.is_prompt = True
    server, port = start(held, rates=rates, clock=ManualClock())  # however long the machine takes, they come at once
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
    await eventually(lambda: len(server.connections) + server.throttled_count == 6)
    assert server.throttled_count > 0
    assert len(server.connections) > 0
    refused = 0
    for reader, writer in clients:
        writer.write(framed(b"12345678"))
        try:
            refused += not await reader.read(4)
        except ConnectionResetError:
            refused += 1
        writer.close()
    assert refused == server.throttled_count
    for address in (None, "127.0.0.1"):
        rates.take({(("ip", address),): {"connection_creation_rate": 1000.0}})
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"12345678"))
        assert await reader.readexactly(12)
        writer.close()


async def test_the_brokers_own_rate_makes_connections_wait_and_refuses_none(start: Starter) -> None:
    held = Held()
    held.is_prompt = True
    server, port = start(held, rates=ConnectionRates(samples=2, window_ms=200), connection_creation_rate_max=20)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
    for reader, writer in clients:
        writer.write(framed(b"12345678"))
        assert await reader.readexactly(12)
        writer.close()
    assert server.throttled_count == server.refused_count == 0


async def test_a_connection_that_rests_is_answered_first_and_heard_later(start: Starter) -> None:
    held = Held()
    _, port = start(held)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(3):
        writer.write(framed(b"request%d" % number))
    await eventually(lambda: held.waiting)
    connection, content = held.waiting.pop()
    began = time.monotonic()
    connection.answer([framed(content)], throttle_time_ms=400)
    assert await reader.readexactly(12) == framed(b"request0")
    await eventually(lambda: held.waiting)
    assert time.monotonic() - began >= 0.39
    connection, content = held.waiting.pop()
    connection.answer([framed(content)], throttle_time_ms=3_600_000)
    assert await reader.readexactly(12) == framed(b"request1")
    assert not connection.is_idle
    assert not held.waiting
    writer.close()


@pytest.mark.parametrize("has_rested", [False, True])
async def test_a_broker_that_stops_does_not_wait_for_connections_that_rest(start: Starter, has_rested: bool) -> None:
    held = Held()
    server, port = start(held)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"request0"))
    await eventually(lambda: held.waiting)
    connection, content = held.waiting.pop()
    connection.answer([framed(content)], throttle_time_ms=3_600_000)
    if has_rested:
        assert await reader.readexactly(12) == framed(b"request0")
    await asyncio.wait_for(server.stop(grace_s=3_600), 30)
    assert await reader.read() == (b"" if has_rested else framed(b"request0"))
    writer.close()
