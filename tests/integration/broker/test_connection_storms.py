"""Clients that storm secured listeners: half-open and slow handshakes, bytes that are no TLS, wrong
certificates and passwords at a rate, renegotiation. Others are served meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from runtime.addresses import HostPort
from tests.support.clients.patient_options import patient_options
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import PASSWORDS, SecuredBroker, jaas
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.secured_kafka import make_certificates
from tests.support.security.hostile_tls import EndlessRecord, SlowHandshake, renegotiated, wrong_certificates
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions, connected
from wire.client.security import load_security, secured
from wire.tls.handshakes import HANDSHAKES_MAX

pytestmark = pytest.mark.integration

METADATA = 3
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A whole request, without a client id."""

CLOSED_WITHIN_S = 120
FAILURES_MAX = 20
STORMING_HOSTS = itertools.count(2)


@pytest.fixture
def storming() -> str:
    """The address of the clients that storm a broker: one for each test, because a broker that
    counts failed logins refuses it for as long as these tests run.
    """
    return f"127.0.0.{next(STORMING_HOSTS)}"


@pytest.fixture(scope="module")
def guarded(session_processes: Any, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    """A broker that refuses an address after few failed logins, in however long a time."""
    limits = {
        "antipode.failed.logins.max": str(FAILURES_MAX),
        "antipode.failed.logins.window.ms": "3600000",
        "connection.failed.authentication.delay.ms": "0",
    }
    return SecuredBroker(session_processes, tmp_path_factory.mktemp("guarded"), **limits)


@pytest.fixture(scope="module")
def broker(session_processes: Any, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    return SecuredBroker(session_processes, tmp_path_factory.mktemp("storms"))


def place(broker: SecuredBroker, listener: str) -> HostPort:
    return HostPort(LOOPBACK, broker.facts["ports"][listener])


async def ask(address: HostPort, options: ConnectionOptions) -> None:
    async with connected(address, options) as connection:
        await connection.call(METADATA, {"topics": ()}, version=1)


def login(user: str, password: str) -> ConnectionOptions:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", user, password),
    }
    return secured(patient_options(), load_security(given))


async def test_more_half_open_handshakes_than_there_may_be_keep_no_client_out(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    options = patient_options(ssl_context=broker.context(is_known=False))
    async with connected(address, options) as before:
        with contextlib.ExitStack() as sockets:
            stuck = [sockets.enter_context(socket.create_connection(address)) for _ in range(HANDSHAKES_MAX + 50)]
            for half_open in stuck[::2]:
                half_open.sendall(HALF_A_HELLO)
            await eventually(lambda: _is_closed(stuck[0]))  # the oldest have made room
            assert not _is_closed(stuck[-1])
            await ask(address, options)
            await before.call(METADATA, {"topics": ()}, version=1)


def _is_closed(half_open: socket.socket) -> bool:
    half_open.setblocking(False)
    try:
        return half_open.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_bytes_that_are_no_tls_end_their_connection_alone(broker: SecuredBroker, tmp_path: Path) -> None:
    address = place(broker, "ENCRYPTED")
    for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(500), b"\x16\x03\x01\xff\xff" + b"x" * 200):
        with socket.create_connection(address) as wrong:
            wrong.settimeout(CLOSED_WITHIN_S)
            wrong.sendall(content)
            with contextlib.suppress(ConnectionError):
                while wrong.recv(4096):
                    pass
    await ask(address, patient_options(ssl_context=broker.context(is_known=False)))


async def test_a_client_of_tls_1_2_is_served_without_a_session_ticket(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    context = broker.context(is_known=False)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    await ask(address, patient_options(ssl_context=context))
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=LOOPBACK) as tls:
        assert tls.version() == "TLSv1.2"
        assert tls.session is None or not tls.session.has_ticket


async def test_wrong_passwords_at_a_rate_leave_others_served(broker: SecuredBroker) -> None:
    address, right = place(broker, "LOGIN"), login("alice", PASSWORDS["alice"])
    refused = 0

    async def try_passwords(number: int) -> None:
        nonlocal refused
        for attempt in range(5):
            with pytest.raises(Unreachable, match="Invalid username or password"):
                await ask(address, login("alice", f"wrong-{number}-{attempt}"))
            refused += 1

    async with asyncio.TaskGroup() as storm:
        for number in range(20):
            storm.create_task(try_passwords(number))
        for _ in range(20):
            await ask(address, right)
    assert refused == 100


def scraped(broker: SecuredBroker) -> dict[str, float]:
    """The samples without labels of the broker's metrics."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{broker.facts['metrics']}/metrics") as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0].isalpha())}


def plain_login(user: str, password: str) -> bytes:
    """SaslHandshake 1 for PLAIN and SaslAuthenticate 1, as frames."""
    client_id = struct.pack(">h", -1)
    handshake = struct.pack(">hhi", 17, 1, 1) + client_id + struct.pack(">h", 5) + b"PLAIN"
    message = f"\0{user}\0{password}".encode()
    authenticate = struct.pack(">hhi", 36, 1, 2) + client_id + struct.pack(">i", len(message)) + message
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in (handshake, authenticate))


def try_login(address: HostPort, user: str, password: str, *, source: str) -> str:
    """Log in from `source`: "right", "wrong", or "refused" when the connection closes unread."""
    try:
        with socket.create_connection(address, source_address=(source, 0)) as client:
            client.settimeout(CLOSED_WITHIN_S)
            client.sendall(plain_login(user, password))
            answers = [_answer(client) for _ in range(2)]
    except ConnectionError:
        return "refused"
    return "right" if struct.unpack_from(">h", answers[1], 4)[0] == 0 else "wrong"


def _answer(client: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(client, 4))
    return _exactly(client, size)


def _exactly(client: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        received = client.recv(size - len(content))
        if not received:
            raise ConnectionResetError
        content += received
    return content


def fail_until_refused(address: HostPort, source: str) -> int:
    """The number of wrong passwords until the address `source` is refused."""
    for count in range(10 * FAILURES_MAX):
        if try_login(address, "alice", "wrong", source=source) == "refused":
            return count
    raise AssertionError("the address is never refused")


async def test_an_address_whose_logins_failed_too_often_is_refused_and_no_other_one(
    guarded: SecuredBroker, storming: str
) -> None:
    address, secured_address = place(guarded, "LOGIN"), place(guarded, "SECURED")
    refused_before = refused_addresses(guarded)
    async with connected(address, login("alice", PASSWORDS["alice"])) as before:
        assert await asyncio.to_thread(fail_until_refused, address, storming) == FAILURES_MAX + 1
        # the right password is not looked at either, at any listener
        assert try_login(address, "alice", PASSWORDS["alice"], source=storming) == "refused"
        with socket.create_connection(secured_address, source_address=(storming, 0)) as refused:
            refused.settimeout(CLOSED_WITHIN_S)
            with contextlib.suppress(ConnectionError):
                refused.sendall(HALF_A_HELLO)
            assert _is_closed_in_the_end(refused)
        await before.call(METADATA, {"topics": ()}, version=1)
        await ask(address, login("alice", PASSWORDS["alice"]))
    assert refused_addresses(guarded) == refused_before + 1
    assert scraped(guarded)["antipode_failed_logins_refused_connections_total"] >= 3
    assert storming in guarded.process.log_text()


def refused_addresses(broker: SecuredBroker) -> float:
    return scraped(broker)["antipode_failed_logins_refused_addresses"]


def _is_closed_in_the_end(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


async def test_connections_that_were_open_before_their_address_is_refused_try_no_password(
    guarded: SecuredBroker, storming: str
) -> None:
    address = place(guarded, "LOGIN")
    with socket.create_connection(address, source_address=(storming, 0)) as early:
        early.settimeout(CLOSED_WITHIN_S)
        await asyncio.to_thread(fail_until_refused, address, storming)
        with contextlib.suppress(ConnectionError):
            early.sendall(plain_login("alice", PASSWORDS["alice"]))
        assert _is_closed_in_the_end(early)


async def test_certificates_that_are_not_accepted_count(guarded: SecuredBroker, storming: str) -> None:
    address = place(guarded, "MUTUAL")
    context, refused_before = guarded.context(is_known=False), refused_addresses(guarded)

    def connect() -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, source_address=(storming, 0)) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK) as tls,
        ):
            # with TLS 1.3 a client learns of its missing certificate after its own handshake
            tls.recv(1)

    def connect_until_refused() -> int:
        for count in range(1, 10 * FAILURES_MAX):
            connect()
            if refused_addresses(guarded) > refused_before:
                return count
        raise AssertionError("the address is never refused")

    assert await asyncio.to_thread(connect_until_refused) > FAILURES_MAX
    await ask(address, patient_options(ssl_context=guarded.context(is_known=True)))


async def test_wrong_order_and_handshakes_that_end_early_are_no_failed_logins(
    guarded: SecuredBroker, storming: str
) -> None:
    encrypted, address = place(guarded, "MUTUAL"), place(guarded, "LOGIN")
    for _ in range(2 * FAILURES_MAX):
        # as a load balancer looks whether the port is open
        socket.create_connection(encrypted, source_address=(storming, 0)).close()
    assert try_login(address, "alice", PASSWORDS["alice"], source=storming) == "right"


async def test_renegotiation_is_refused_and_others_are_served(guarded: SecuredBroker) -> None:
    address = place(guarded, "ENCRYPTED")
    output = await asyncio.to_thread(renegotiated, address, guarded.certificates.authority)
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output or "alert" in output
    await ask(address, patient_options(ssl_context=guarded.context(is_known=False)))


async def test_handshakes_byte_by_byte_complete_while_others_are_served(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    context, options = broker.context(is_known=False), patient_options(ssl_context=broker.context(is_known=False))
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(SlowHandshake(address, context)) for _ in range(20)]
        for _ in range(5):
            for _ in range(20):
                assert all(client.send_byte() for client in slow)
            await ask(address, options)
        for client in slow:
            await asyncio.to_thread(client.complete)
            assert await asyncio.to_thread(client.ask, API_VERSIONS)


async def test_a_handshake_that_goes_on_byte_by_byte_ends_all_the_same(broker: SecuredBroker) -> None:
    address = place(broker, "ENCRYPTED")
    with EndlessRecord(address) as endless:
        # each byte shows activity, but the time of the whole handshake is bounded
        await eventually(endless.is_closed_after_another_byte)
    await ask(address, patient_options(ssl_context=broker.context(is_known=False)))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_wrong_certificates_at_a_rate_leave_others_served(
    broker: SecuredBroker, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    address, options = place(broker, "MUTUAL"), patient_options(ssl_context=broker.context(is_known=True))
    wrong = broker.context(is_known=False)
    wrong.minimum_version = wrong.maximum_version = version
    wrong.load_cert_chain(str(make_certificates(tmp_path / "strangers").client))
    async with connected(address, options) as before:
        with wrong_certificates(address, wrong, API_VERSIONS) as storm:
            await eventually(lambda: storm.refused)
            for _ in range(20):
                await before.call(METADATA, {"topics": ()}, version=1)
                await ask(address, options)
            await eventually(lambda: storm.refused >= 20)
    assert not storm.accepted


async def test_clients_that_vanish_behind_tls_leave_no_connection_open(broker: SecuredBroker) -> None:
    address, context = place(broker, "ENCRYPTED"), broker.context(is_known=False)
    options = patient_options(ssl_context=context)
    async with connected(address, options) as before:
        open_before = scraped(broker)["kafka_server_socket_server_metrics_connection_count"]
        with contextlib.ExitStack() as sockets:
            for _ in range(50):
                plain = socket.create_connection(address)
                tls = sockets.enter_context(context.wrap_socket(plain, server_hostname=LOOPBACK))
                # half a frame; the close then sends a reset without the end of TLS
                tls.sendall(API_VERSIONS[:7])
                tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await eventually(
                lambda: scraped(broker)["kafka_server_socket_server_metrics_connection_count"] >= open_before + 50
            )
            await ask(address, options)
        await eventually(lambda: scraped(broker)["kafka_server_socket_server_metrics_connection_count"] <= open_before)
        await before.call(METADATA, {"topics": ()}, version=1)


async def test_storms_of_every_kind_leave_a_good_client_served(guarded: SecuredBroker, storming: str) -> None:
    encrypted, address = place(guarded, "ENCRYPTED"), place(guarded, "LOGIN")
    is_over = threading.Event()

    def connections() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                socket.create_connection(encrypted, source_address=(storming, 0)).close()

    def half_open_handshakes() -> None:
        with contextlib.ExitStack() as sockets:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    stuck = socket.create_connection(encrypted, source_address=(storming, 0))
                    sockets.enter_context(stuck).sendall(HALF_A_HELLO)
            is_over.wait()

    def wrong_passwords() -> None:
        while not is_over.is_set():
            try_login(address, "alice", "wrong", source=storming)

    storms = [asyncio.to_thread(storm) for storm in (connections, half_open_handshakes, wrong_passwords)]
    running = asyncio.gather(*storms)
    try:
        async with connected(address, login("alice", PASSWORDS["alice"])) as before:
            for _ in range(30):
                await before.call(METADATA, {"topics": ()}, version=1)
                await ask(address, login("alice", PASSWORDS["alice"]))
                await ask(encrypted, patient_options(ssl_context=guarded.context(is_known=False)))
    finally:
        is_over.set()
        await running
