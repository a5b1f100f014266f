"""Malformed bytes: their connection is closed, others continue, and memory stays bounded."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import uuid
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.integration.broker.test_requests import create, records
from tests.support.clients.raw_client import RawClient
from tests.support.clock import ManualClock
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.connection_servers import Held, connection_servers, framed
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.protocol.streams.frames import request_prefix

pytestmark = pytest.mark.integration

MEBIBYTE = 1 << 20


@pytest.fixture
def healthy(lone_broker: LoneBroker) -> Iterator[Callable[[], None]]:
    """Proves that another connection is still served, and that the process is the same one."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    pid = lone_broker.process.pid
    with RawClient(lone_broker.port) as client:
        create(client, name)

        def check() -> None:
            assert client.produce(name, records()).error_code == 0
            assert lone_broker.process.pid == pid

        yield check


def is_closed_after(port: int, data: bytes) -> bool:
    """True when the broker closes the connection that sent `data`."""
    with RawClient(port) as client:
        try:
            client.send_bytes(data)
            client.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return True
        while client.read_frame():
            pass
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhih", 10, 0, 99, 1, -1),
        struct.pack(">ihhih", 10, 3, 1, 1, 500),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0x7FFFFFFF),
        request_prefix(19, 7, 1, "x", body_size=6) + b"\xff\xff\xff\xff\x07\x00",
    ],
)
def test_rubbish_closes_its_own_connection_only(
    lone_broker: LoneBroker, healthy: Callable[[], None], data: bytes
) -> None:
    assert is_closed_after(lone_broker.port, data)
    healthy()


def test_an_api_versions_request_from_the_future_is_answered_with_the_list(lone_broker: LoneBroker) -> None:
    with RawClient(lone_broker.port) as client:
        client.send_bytes(struct.pack(">ihhih", 10, 18, 77, 5, -1))
        frame = client.read_frame()
        correlation, error, count = struct.unpack_from(">ihi", frame)
        assert (correlation, error) == (5, 35)
        assert count > 10


def test_random_and_damaged_frames_never_harm_others(lone_broker: LoneBroker, healthy: Callable[[], None]) -> None:
    chance = random.Random(20261121)
    sample = bytearray()
    with RawClient(lone_broker.port) as client:
        client.send_bytes = sample.extend  # type: ignore[method-assign]
        client.send_produce("some-topic", records(3))
    for round_number in range(150):
        kind = chance.randrange(4)
        if kind == 0:
            data = chance.randbytes(chance.randrange(1, 300))
        elif kind == 1:
            body = struct.pack(">hhih", chance.randrange(0, 70), chance.randrange(0, 14), 1, -1)
            body += chance.randbytes(chance.randrange(0, 200))
            data = struct.pack(">i", len(body)) + body
        elif kind == 2:
            damaged = bytearray(sample)
            for _ in range(chance.randrange(1, 6)):
                damaged[chance.randrange(4, len(damaged))] = chance.randrange(256)
            data = bytes(damaged)
        else:
            data = bytes(sample[: chance.randrange(1, len(sample))])
        assert is_closed_after(lone_broker.port, data)
        if round_number % 10 == 0:
            healthy()
    healthy()


def test_claimed_sizes_are_not_memory(lone_broker: LoneBroker, healthy: Callable[[], None]) -> None:
    process = psutil.Process(lone_broker.process.pid)
    before = process.memory_info().rss
    clients = [RawClient(lone_broker.port) for _ in range(50)]
    try:
        for client in clients:
            client.send_bytes(struct.pack(">ihhih", 90 * MEBIBYTE, 0, 9, 1, -1) + b"\0" * 1000)
        healthy()
        assert process.memory_info().rss - before < 60 * MEBIBYTE
    finally:
        for client in clients:
            client.socket.close()


def test_large_requests_wait_for_memory_and_are_all_served(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(queued_max_request_bytes="2000000")
    clients = [RawClient(broker.port) for _ in range(8)]
    try:
        create(clients[0], "t")
        big = records(1, size=900_000)
        for client in clients:
            client.send_produce("t", big)
        for client in clients:
            assert client.read_frame()
    finally:
        for client in clients:
            client.socket.close()


@pytest.mark.parametrize(
    "limit", [{"max_connections_per_ip": "2"}, {"max_connections_per_ip_overrides": "localhost:2"}]
)
def test_too_many_connections_from_one_address_are_closed(
    start_broker: Callable[..., LoneBroker], limit: dict[str, str]
) -> None:
    broker = start_broker(**limit)
    with RawClient(broker.port) as first, RawClient(broker.port) as second, RawClient(broker.port) as third:
        assert third.read_frame() == b""
        create(first, "t")
        assert second.produce("t", records()).error_code == 0

    def is_served() -> bool:
        """The broker may not have seen yet that the others are gone."""
        with RawClient(broker.port) as again:
            again.send_produce("t", records())
            return bool(again.read_frame())

    eventually_sync(is_served)


def test_an_idle_connection_is_closed(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(connections_max_idle_ms="400")
    with RawClient(broker.port) as idle:
        assert idle.read_frame() == b""


async def test_a_busy_connection_is_not_closed_when_an_idle_one_is() -> None:
    handler, clock = Held(), ManualClock()
    handler.is_prompt = True
    async with connection_servers() as start:
        server, port = start(handler, idle_ms_max=400, clock=clock)
        idle_reader, idle = await asyncio.open_connection("127.0.0.1", port)
        busy_reader, busy = await asyncio.open_connection("127.0.0.1", port)

        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(framed(b"a request"))
            assert await reader.readexactly(len(framed(b"a request"))) == framed(b"a request")

        await ask(idle_reader, idle)
        clock.advance(300)
        await ask(busy_reader, busy)
        clock.advance(300)
        assert await idle_reader.read() == b""
        assert server.reaped_count == 1
        await ask(busy_reader, busy)
        for each in (idle, busy):
            each.close()
