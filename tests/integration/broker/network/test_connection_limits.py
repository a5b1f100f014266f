"""Limits of connections: size of requests, number of connections by address, broker and listener,
rate of new ones.
"""

from __future__ import annotations

import asyncio
import struct

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from broker.quotas.core.connection_rates import ConnectionRates
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.lone_brokers.connection_servers import Held, Starter, framed

pytestmark = pytest.mark.integration


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


async def test_an_override_of_the_limit_by_address_wins_and_changes_while_running(start: Starter) -> None:
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


async def test_limits_of_an_ipv4_address_count_on_a_listener_of_both_families(start: Starter) -> None:
    """Its sockets show addresses of IPv4 as mapped ones, which no limit names."""
    rates = ConnectionRates(samples=2, window_ms=1000)
    rates.take({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1000.0}})
    server, port = start(Held(), host="::", connections_per_address_overrides={"127.0.0.1": 1}, rates=rates)
    _, first = await asyncio.open_connection("127.0.0.1", port)
    refused, second = await asyncio.open_connection("127.0.0.1", port)
    await eventually(lambda: len(server.connections) + server.refused_count == 2)
    assert [address for address, _ in rates.rates(server.clock.monotonic_ms())] == ["127.0.0.1"]
    assert [connection.address.rpartition(":")[0] for connection in server.connections] == ["127.0.0.1"]
    assert await refused.read() == b""
    for writer in (first, second):
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


async def test_a_changed_limit_admits_waiting_connections_or_closes_the_longest_idle(start: Starter) -> None:
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


async def test_the_inter_broker_listener_is_exempt_and_closes_another_listeners_longest_idle(
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


async def test_an_address_that_connects_too_fast_is_refused_and_may_connect_again_later(start: Starter) -> None:
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


async def test_the_brokers_own_rate_delays_connections_and_refuses_none(start: Starter) -> None:
    held = Held()
    held.is_prompt = True
    server, port = start(held, rates=ConnectionRates(samples=2, window_ms=200), connection_creation_rate_max=20)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
    for reader, writer in clients:
        writer.write(framed(b"12345678"))
        assert await reader.readexactly(12)
        writer.close()
    assert server.throttled_count == server.refused_count == 0
