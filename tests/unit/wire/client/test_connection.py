"""One connection to a broker: order, bounds, deadlines, and faults of the broker."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.clients.scripted_broker import API_VERSIONS, ScriptedBroker, in_pieces, versions_answer
from tests.support.eventually import eventually
from wire.client.client_errors import RequestTimedOut, Unreachable, UnsupportedApi
from wire.client.connection import Connection, ConnectionOptions, connected, open_connection
from wire.client.connection_pool import ConnectionPool
from wire.client.login_session import LoginExchange, LoginSession
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.protocol.streams import frames
from wire.protocol.streams.frames import RequestHeader, VersionRange

LIST_GROUPS = 16
NO_GROUPS = {"throttle_time": versions_answer({})["throttle_time"], "error_code": ErrorCode.none, "groups": []}
LATER = schemas.encode(build_entity(schemas.request_type(LIST_GROUPS, 4), {"states_filter": ()}))
LARGE = schemas.encode(build_entity(schemas.request_type(LIST_GROUPS, 4), {"states_filter": ("x" * 10_000,) * 2_000}))
"""More than the sockets of a connection take (20 MB)."""
LOGIN = {"states_filter": ("login",)}
REQUEST = {"states_filter": (), "types_filter": ()}


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as running:
        running.on(LIST_GROUPS, lambda request, header: NO_GROUPS)
        yield running


async def named(connection: Connection, name: str, **options: Any) -> Any:
    return await connection.call(LIST_GROUPS, {"states_filter": (name,), "types_filter": ()}, **options)


def echo(request: Any, header: RequestHeader) -> dict[str, Any]:
    group = {"group_id": request.states_filter[0], "protocol_type": "", "group_state": "", "group_type": ""}
    return {**NO_GROUPS, "groups": [group]}


async def test_answers_come_in_the_order_of_the_requests(broker: ScriptedBroker) -> None:
    broker.on(LIST_GROUPS, echo)
    async with connected(broker.address, ConnectionOptions(in_flight_max=3)) as connection:
        answers = await asyncio.gather(*(named(connection, str(number)) for number in range(20)))
    assert [answer.groups[0].group_id for answer in answers] == [str(number) for number in range(20)]
    assert [request.states_filter[0] for request in broker.requests(LIST_GROUPS)] == [str(n) for n in range(20)]


async def test_connections_are_kept_alive_and_send_at_once(broker: ScriptedBroker) -> None:
    async with connected(broker.address, ConnectionOptions()) as connection:
        live = connection._stream.transport.get_extra_info("socket")
        assert live.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert live.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("receive_bytes", "send_bytes"), [(40_000, 60_000), (-1, 60_000), (40_000, -1), (-1, -1)])
async def test_the_buffers_of_a_socket_have_the_sizes_that_were_asked_for(
    broker: ScriptedBroker, receive_bytes: int, send_bytes: int
) -> None:
    options = ConnectionOptions(receive_buffer_bytes=receive_bytes, send_buffer_bytes=send_bytes)
    async with connected(broker.address, options) as connection:
        live = connection._stream.transport.get_extra_info("socket")
        for name, wanted_bytes in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            in_force = live.getsockopt(socket.SOL_SOCKET, name)
            # Linux doubles what is asked for, and a size that was set is never what it starts a
            # socket with.
            if wanted_bytes >= 0:
                assert in_force == 2 * wanted_bytes
            else:
                assert in_force not in (2 * receive_bytes, 2 * send_bytes)


async def test_no_more_requests_than_allowed_are_unanswered(broker: ScriptedBroker) -> None:
    may_answer, asked = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, header: RequestHeader) -> Any:
        asked.set()
        await may_answer.wait()
        return NO_GROUPS

    broker.on(LIST_GROUPS, slow)
    async with connected(broker.address, ConnectionOptions(in_flight_max=2)) as connection:
        calls = [asyncio.create_task(connection.call(LIST_GROUPS, REQUEST)) for _ in range(6)]
        await asked.wait()
        most = connection.in_flight_count
        may_answer.set()
        await asyncio.gather(*calls)
    assert most == 2


async def test_missed_deadline_closes_the_connection_and_fails_those_behind(broker: ScriptedBroker) -> None:
    broker.on(LIST_GROUPS, lambda request, header: None)
    async with connected(broker.address, ConnectionOptions()) as connection:
        behind = asyncio.create_task(named(connection, "behind"))
        with pytest.raises(RequestTimedOut, match=r"list_groups: no answer within 50 ms"):
            await named(connection, "first", timeout_ms=50)
        with pytest.raises(Unreachable, match="connection lost: a request timed out"):
            await behind
        assert not connection.is_open
        with pytest.raises(Unreachable):
            await named(connection, "later")


async def test_an_answer_that_takes_longer_than_the_deadline_is_waited_for_while_bytes_come(
    broker: ScriptedBroker,
) -> None:
    timeout_s = 0.8

    def slow(request: Any, header: RequestHeader) -> AsyncIterator[bytes]:
        groups = [{"group_id": "x" * 1000, "protocol_type": "", "group_state": "", "group_type": ""}]
        entity = build_entity(schemas.response_type(LIST_GROUPS, header.api_version), {**NO_GROUPS, "groups": groups})
        answer = frames.encode_response(LIST_GROUPS, header.api_version, header.correlation_id, entity)
        return in_pieces(answer, lasting_s=2 * timeout_s)

    broker.on(LIST_GROUPS, slow)
    async with connected(broker.address, ConnectionOptions(request_timeout_ms=timeout_s * 1000)) as connection:
        answer = await connection.call(LIST_GROUPS, REQUEST)
    assert len(answer.groups) == 1


async def test_requests_sent_later_do_not_keep_a_silent_one_waiting(broker: ScriptedBroker) -> None:
    broker.on(LIST_GROUPS, lambda request, header: None)
    async with connected(broker.address, ConnectionOptions(in_flight_max=1000)) as connection:
        silent = asyncio.create_task(named(connection, "first", timeout_ms=200))
        while not (await asyncio.wait([silent], timeout=0.005))[0] and connection.is_open:
            await connection.send_unanswered(LIST_GROUPS, 4, [LATER], body_size=len(LATER))
        with pytest.raises(RequestTimedOut, match=r"list_groups: no answer within 200 ms"):
            await silent


async def test_a_request_without_an_answer_that_a_silent_broker_does_not_read_misses_its_deadline(
    broker: ScriptedBroker,
) -> None:
    go = asyncio.Event()

    async def silent(request: Any, header: RequestHeader) -> None:
        await go.wait()

    broker.on(LIST_GROUPS, silent)
    body = bytes(1024 * 1024)

    async def send_for_ever(connection: Connection) -> None:
        while True:
            await connection.send_unanswered(LIST_GROUPS, 4, [LATER, body], body_size=len(LATER) + len(body))

    async with connected(broker.address, ConnectionOptions(request_timeout_ms=400)) as connection:
        with pytest.raises(RequestTimedOut, match="not sent within 400 ms"):
            await asyncio.wait_for(send_for_ever(connection), timeout=60)
        assert not connection.is_open
    go.set()


async def test_a_request_without_an_answer_is_whole_when_the_connection_is_closed_after_it(
    broker: ScriptedBroker,
) -> None:
    broker.on(LIST_GROUPS, lambda request, header: None)
    async with connected(broker.address, ConnectionOptions()) as connection:
        await connection.send_unanswered(LIST_GROUPS, 4, [LARGE], body_size=len(LARGE))
    await eventually(lambda: broker.requests(LIST_GROUPS))


async def test_cancelled_caller_does_not_disturb_the_others(broker: ScriptedBroker) -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, header: RequestHeader) -> Any:
        asked.set()
        await go.wait()
        return echo(request, header)

    broker.on(LIST_GROUPS, slow)
    async with connected(broker.address, ConnectionOptions(in_flight_max=1)) as connection:
        first = asyncio.create_task(named(connection, "first"))
        second = asyncio.create_task(named(connection, "second"))
        third = asyncio.create_task(named(connection, "third"))
        await asked.wait()
        first.cancel()
        second.cancel()
        go.set()
        assert (await third).groups[0].group_id == "third"
        assert first.cancelled()
        assert connection.in_flight_count == 0


async def test_a_caller_that_goes_while_nothing_can_be_written_leaves_its_place_to_others(
    broker: ScriptedBroker,
) -> None:
    async with connected(broker.address, ConnectionOptions(in_flight_max=1)) as connection:
        connection._stream.pause_writing()
        impatient = asyncio.create_task(named(connection, "impatient"))
        await eventually(connection._slots.locked)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        connection._stream.resume_writing()
        await asyncio.wait_for(named(connection, "another"), 10)
    assert [request.states_filter[0] for request in broker.requests(LIST_GROUPS)] == ["another"]


async def test_lost_connection_fails_the_request_in_flight(broker: ScriptedBroker) -> None:
    def cut(request: Any, header: RequestHeader) -> None:
        broker.cut()

    broker.on(LIST_GROUPS, cut)
    async with connected(broker.address, ConnectionOptions()) as connection:
        with pytest.raises(Unreachable, match="connection lost") as lost:
            await connection.call(LIST_GROUPS, REQUEST)
        assert "security.protocol" not in str(lost.value)


async def test_negotiation_falls_back_when_the_broker_refuses_the_version(broker: ScriptedBroker) -> None:
    def old(request: Any, header: RequestHeader) -> Any:
        offered = {API_VERSIONS: VersionRange(0, 1), LIST_GROUPS: VersionRange(0, 2)}
        if header.api_version <= 1:
            return versions_answer(offered)
        refusal = build_entity(schemas.response_type(API_VERSIONS, 0), versions_answer(offered, error_code=35))
        return frames.encode_response(API_VERSIONS, 0, header.correlation_id, refusal)

    broker.scripts[API_VERSIONS] = old
    async with connected(broker.address, ConnectionOptions()) as connection:
        assert connection.version_for(LIST_GROUPS) == 2
        assert connection.versions[API_VERSIONS] == (0, 1)
        await connection.call(LIST_GROUPS, REQUEST)


async def test_software_name_tells_brokers_who_we_are(broker: ScriptedBroker) -> None:
    async with connected(broker.address, ConnectionOptions(client_id="me")):
        header, request = broker.seen[0]
    assert request.client_software_name == CLIENT_SOFTWARE_NAME
    assert header.client_id == "me"


async def test_handshake_comes_before_every_other_request(broker: ScriptedBroker) -> None:
    async def authenticate(line: LoginExchange) -> float:
        await line.call(LIST_GROUPS, REQUEST, version=0)
        return 0.0

    async with connected(broker.address, ConnectionOptions(handshake=authenticate)):
        assert [header.api_key for header, _ in broker.seen] == [LIST_GROUPS, API_VERSIONS]


async def test_no_request_is_written_before_a_login_that_is_due(broker: ScriptedBroker) -> None:
    async def authenticate(line: LoginExchange) -> float:
        await line.call(LIST_GROUPS, LOGIN, version=4)
        return 0.001

    broker.on(LIST_GROUPS, echo)
    async with connected(broker.address, ConnectionOptions(handshake=authenticate, in_flight_max=1)) as connection:
        await asyncio.gather(*(named(connection, str(number)) for number in range(5)))
    names = [request.states_filter[0] for request in broker.requests(LIST_GROUPS)]
    assert [name for name in names if name != "login"] == ["0", "1", "2", "3", "4"]
    assert all(names[names.index(str(number)) - 1] == "login" for number in range(5))


async def test_a_login_that_is_due_is_completed_when_its_request_is_cancelled(broker: ScriptedBroker) -> None:
    is_half_done, may_go_on = asyncio.Event(), asyncio.Event()
    sessions_ms = [0.001, 0.0]

    async def authenticate(line: LoginExchange) -> float:
        await line.call(LIST_GROUPS, {"states_filter": ("begins",)}, version=4)
        if len(sessions_ms) == 1:
            is_half_done.set()
            await may_go_on.wait()
        await line.call(LIST_GROUPS, {"states_filter": ("ends",)}, version=4)
        return sessions_ms.pop(0)

    async with connected(broker.address, ConnectionOptions()) as connection:
        login = LoginSession(connection, connection._order, authenticate)
        async with connection._order:
            await login.begin()
            login.end()  # no timer: the request renews the login
            connection._login = login
        cancelled, after = (asyncio.create_task(named(connection, name)) for name in ("cancelled", "after"))
        await is_half_done.wait()
        cancelled.cancel()
        may_go_on.set()
        await after
        assert cancelled.cancelled()
    names = [request.states_filter[0] for request in broker.requests(LIST_GROUPS)]
    assert names == ["begins", "ends", "begins", "ends", "after"]


@pytest.mark.parametrize(
    "rubbish",
    [
        struct.pack(">ii", 4, 12345),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">iib", 5, 1, 0) * 2,
        struct.pack(">iibibb", 10, 1, 0, 0, 0, 127),
    ],
    ids=["foreign answer", "negative size", "huge size", "no header", "short body", "lying length"],
)
async def test_rubbish_closes_the_connection(broker: ScriptedBroker, rubbish: bytes) -> None:
    broker.on(LIST_GROUPS, lambda request, header: rubbish)
    async with connected(broker.address, ConnectionOptions()) as connection:
        with pytest.raises(Unreachable):
            await connection.call(LIST_GROUPS, REQUEST)
        assert not connection.is_open


async def test_version_is_the_highest_that_both_speak(broker: ScriptedBroker) -> None:
    broker.on(LIST_GROUPS, echo, VersionRange(1, 99))
    broker.versions[0] = VersionRange(0, 2)
    async with connected(broker.address, ConnectionOptions()) as connection:
        assert connection.version_for(LIST_GROUPS) == 5
        assert connection.version_for(LIST_GROUPS, highest=3) == 3
        with pytest.raises(UnsupportedApi, match="produce: the broker offers 0 to 2"):
            connection.version_for(0)
        with pytest.raises(UnsupportedApi, match="fetch: the broker does not offer it"):
            connection.version_for(1)


async def test_an_address_without_a_listener_is_named(unused_tcp_port: int) -> None:
    from runtime.addresses import HostPort

    with pytest.raises(Unreachable, match=f"127.0.0.1:{unused_tcp_port}: cannot connect"):
        await open_connection(HostPort("127.0.0.1", unused_tcp_port), ConnectionOptions())


async def test_a_listener_that_closes_without_an_answer_may_have_another_protocol(broker: ScriptedBroker) -> None:
    broker.scripts[API_VERSIONS] = lambda request, header: broker.cut()
    with pytest.raises(Unreachable, match=r"connection lost: .*security.protocol may not fit this listener"):
        await open_connection(broker.address, ConnectionOptions())


async def test_silent_listener_times_out(broker: ScriptedBroker) -> None:
    broker.scripts[API_VERSIONS] = lambda request, header: None
    with pytest.raises(Unreachable, match="timed out"):
        await open_connection(broker.address, ConnectionOptions(connect_timeout_ms=50))


async def test_pool_shares_one_connection_and_opens_another_after_a_loss(broker: ScriptedBroker) -> None:
    pool = ConnectionPool(ConnectionOptions())
    first, second = await asyncio.gather(pool.get(broker.address), pool.get(broker.address))
    assert first is second
    pool.drop(broker.address, "for the test")
    assert pool.open_addresses() == []
    third = await pool.get(broker.address)
    assert third is not first
    assert broker.connection_count == 2
    await pool.close()
    with pytest.raises(Unreachable, match="closed"):
        await pool.get(broker.address)


async def test_a_pool_that_is_closed_while_it_connects_keeps_nothing_open(broker: ScriptedBroker) -> None:
    may_go_on, begun = asyncio.Event(), asyncio.Event()

    async def slow(_: LoginExchange) -> float:
        begun.set()
        await may_go_on.wait()
        return 0.0

    pool = ConnectionPool(ConnectionOptions(handshake=slow))
    asking = asyncio.create_task(pool.get(broker.address))
    await begun.wait()
    await pool.close()
    may_go_on.set()
    with pytest.raises(Unreachable, match="the client is closed"):
        await asking
    await eventually(lambda: broker.open_count == 0)


async def test_callers_that_wait_for_an_attempt_share_its_failure(broker: ScriptedBroker) -> None:
    """Of a broker that does not answer, the last of many callers would wait for hours."""
    attempts, may_go_on = 0, asyncio.Event()

    async def refused(line: LoginExchange) -> float:
        nonlocal attempts
        attempts += 1
        await may_go_on.wait()
        raise Unreachable("login refused", node=str(line.address))

    pool = ConnectionPool(ConnectionOptions(handshake=refused))
    asking = [asyncio.create_task(pool.get(broker.address)) for _ in range(20)]
    await eventually(lambda: attempts == 1)
    may_go_on.set()
    failures = await asyncio.gather(*asking, return_exceptions=True)
    assert attempts == 1
    assert {str(failure) for failure in failures} == {f"{broker.address}: login refused"}
    with pytest.raises(Unreachable):
        await pool.get(broker.address)
    assert attempts == 2, "a later caller tries again"
    await pool.close()


async def test_pool_reaches_a_broker_that_comes_back(broker: ScriptedBroker) -> None:
    pool = ConnectionPool(ConnectionOptions())
    await pool.get(broker.address)
    await broker.stop()
    for _ in range(3):
        pool.drop(broker.address, "for the test")
        with pytest.raises(Unreachable):
            await pool.get(broker.address)
    await broker.start()
    assert (await pool.get(broker.address)).is_open
    await pool.close()


@pytest.mark.parametrize("address", [HostPort("a..b", 9092), HostPort("127.0.0.1", 99_999)])
async def test_an_address_that_no_broker_can_have_is_unreachable(address: HostPort) -> None:
    with pytest.raises(Unreachable):
        await open_connection(address, ConnectionOptions())
