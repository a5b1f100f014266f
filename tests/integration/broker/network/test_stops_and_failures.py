"""Controlled stops, handlers that fail, and throttled connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.dispatch import Dispatcher
from broker.handlers.registry import EntityHandler
from broker.metrics import BrokerMetrics
from broker.quotas.client_throttling import Quotas
from broker.settings.loading import load_broker_settings
from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, framed
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.protocol.streams.frames import VersionRange

pytestmark = pytest.mark.integration

LIST_GROUPS = 16


async def test_a_stop_answers_all_received_requests_and_accepts_no_new_connection(start: Starter) -> None:
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


async def test_a_handler_that_never_answers_delays_a_stop_by_the_grace_period_only(start: Starter) -> None:
    handler = Held()
    server, port = start(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"lost cause"))
    await eventually(lambda: handler.waiting)
    await server.stop(grace_s=0.05)
    assert await reader.read() == b""
    writer.close()


async def test_a_connection_that_its_client_resets_is_closed_and_no_callback_fails(start: Starter) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    server, port = start(Held())
    client = socket.create_connection(("127.0.0.1", port))
    await eventually(lambda: server.connections)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends a reset
    client.close()
    await eventually(lambda: not server.connections)
    assert failures == []


async def test_a_failing_handler_gets_an_error_response_and_the_connection_stays_open(
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


async def test_a_throttled_connection_gets_its_response_and_is_read_later(start: Starter) -> None:
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


@pytest.mark.parametrize("is_throttled", [False, True])
async def test_a_stop_does_not_wait_for_throttled_connections(start: Starter, is_throttled: bool) -> None:
    held = Held()
    server, port = start(held)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"request0"))
    await eventually(lambda: held.waiting)
    connection, content = held.waiting.pop()
    connection.answer([framed(content)], throttle_time_ms=3_600_000)
    if is_throttled:
        assert await reader.readexactly(12) == framed(b"request0")
    await asyncio.wait_for(server.stop(grace_s=3_600), 30)
    assert await reader.read() == (b"" if is_throttled else framed(b"request0"))
    writer.close()
