"""Listeners whose clients log in, and real clients: each mechanism with right and wrong passwords,
users that are made and removed while the broker runs, sessions that end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.addresses import parse_host_port
from tests.support.clients.java_clients import CONFIGS, KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce, sockets_left_open
from tests.support.clients.patient_options import patient_options
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually, eventually_sync
from tests.support.lone_brokers.secured_broker import (
    BROKER,
    BROKER_PASSWORD,
    PASSWORDS,
    SecuredBroker,
    jaas,
)
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.ports import LOOPBACK
from tests.support.security.token_server import CLIENT, SECRET, TokenServer
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions, connected
from wire.client.security import load_security, secured
from wire.protocol.streams.frames import MalformedResponse

pytestmark = pytest.mark.integration

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ONE_MECHANISM = [
    *(pytest.param(mechanism, marks=pytest.mark.long) for mechanism in MECHANISMS[:-1]),
    MECHANISMS[-1],
]
"""For clients that take seconds to start; librdkafka tries all of them in each run."""
RECORDS = [Record(b"value-%d" % number) for number in range(20)]
PASSWORD = 'carol, = " and more'
METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36


@pytest.fixture(scope="module")
def broker(session_processes: Any, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    found = SecuredBroker(session_processes, tmp_path_factory.mktemp("logins"))
    add_user(found, "carol", PASSWORD)
    return found


def add_user(broker: SecuredBroker, user: str, password: str) -> None:
    """Add a user by librdkafka's admin client, as the broker's own user."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": broker.at("LOGIN"), **rdkafka("SCRAM-SHA-256", BROKER, BROKER_PASSWORD)})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for outcome in admin.alter_user_scram_credentials([wanted]).values():
            outcome.result(120)


def rdkafka(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def user_of(mechanism: str) -> tuple[str, str]:
    return ("alice", PASSWORDS["alice"]) if mechanism == "PLAIN" else ("carol", PASSWORD)


def java(broker: SecuredBroker, mechanism: str, user: str, password: str) -> dict[str, str]:
    line = jaas(mechanism, user, password.replace('"', '\\"'))
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": line}
    return {**broker.java(is_known=False), **own}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_and_is_refused_with_a_wrong_password(broker: SecuredBroker, mechanism: str) -> None:
    from confluent_kafka.admin import AdminClient

    settings = {**broker.librdkafka(is_known=False), **rdkafka(mechanism, *user_of(mechanism))}
    settings["security.protocol"] = "sasl_ssl"
    topic = f"by-{mechanism.lower()}"
    librdkafka_produce(broker.at("SECURED"), topic, RECORDS, settings=settings)
    got = librdkafka_consume(broker.at("SECURED"), topic, len(RECORDS), group=topic, settings=settings)
    assert [record.value for record in got] == [record.value for record in RECORDS]

    errors: list[str] = []
    wrong = AdminClient(
        {
            "bootstrap.servers": broker.at("LOGIN"),
            **rdkafka(mechanism, "carol", "wrong"),
            "error_cb": lambda error: errors.append(f"{error.name()} {error.str()}"),
        }
    )

    def is_refused() -> bool:
        wrong.poll(0.1)
        return any("_AUTHENTICATION" in error for error in errors)

    eventually_sync(is_refused)


@pytest.mark.parametrize("mechanism", ONE_MECHANISM)
def test_java_s_clients_log_in_and_are_refused_with_a_wrong_password(
    broker: SecuredBroker, mechanism: str, tmp_path: Path
) -> None:
    programs, values = KafkaPrograms(), [b"java-%d" % number for number in range(10)]
    topic, settings = f"java-{mechanism.lower()}", java(broker, mechanism, *user_of(mechanism))
    programs.produce(broker.at("SECURED"), topic, values, settings=settings)
    assert programs.consume(broker.at("SECURED"), topic, len(values), settings=settings) == values
    file = tmp_path / "wrong.properties"
    wrong = java(broker, mechanism, "alice", "wrong")
    file.write_text("".join(f"{key}={value}\n" for key, value in wrong.items()))
    complaint = programs.refused(
        CONFIGS, "--bootstrap-server", broker.at("SECURED"), "--command-config", str(file), "--describe",
        "--entity-type", "brokers", "--entity-name", "1",
    )  # fmt: skip
    assert "SaslAuthenticationException" in complaint


def test_kafka_s_config_tool_makes_shows_and_removes_users(broker: SecuredBroker, tmp_path: Path) -> None:
    programs, file = KafkaPrograms(), tmp_path / "admin.properties"
    settings = java(broker, "SCRAM-SHA-512", BROKER, BROKER_PASSWORD)
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    door = ("--bootstrap-server", broker.at("SECURED"), "--command-config", str(file))
    whom = ("--entity-type", "users", "--entity-name", "dave")

    def show() -> str:
        return programs.run(CONFIGS, *door, "--describe", *whom).decode()

    programs.run(CONFIGS, *door, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=dave]", *whom)
    assert "SCRAM-SHA-512=iterations=8192" in show()
    login = rdkafka("SCRAM-SHA-512", "dave", "dave")
    librdkafka_produce(broker.at("LOGIN"), "by-dave", RECORDS, settings=login)
    programs.run(CONFIGS, *door, "--alter", "--delete-config", "SCRAM-SHA-512", *whom)
    assert "SCRAM" not in show()


@pytest.mark.parametrize("mechanism", ONE_MECHANISM)
async def test_aiokafka_and_kafka_python_log_in(broker: SecuredBroker, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer
    from kafka import KafkaProducer

    user, password = user_of(mechanism)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.at("SECURED"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "ssl_context": broker.context(is_known=False),
    }
    async with AIOKafkaProducer(**options) as producer:
        assert (await producer.send_and_wait("by-python", b"aiokafka")).offset >= 0

    def send() -> int:
        with sockets_left_open():
            producer = KafkaProducer(**options)
            try:
                return int(producer.send("by-python", b"kafka-python").get(30).offset)
            finally:
                producer.close()

    assert await asyncio.to_thread(send) >= 0


async def own_options(broker: SecuredBroker, mechanism: str, user: str, password: str) -> ConnectionOptions:
    escaped = password.replace('"', '\\"')
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, user, escaped),
    }
    return secured(patient_options(), load_security(given))


async def test_our_own_client_logs_in_and_learns_why_it_is_refused(broker: SecuredBroker) -> None:
    address = parse_host_port(broker.at("LOGIN"))
    for mechanism in MECHANISMS:
        async with connected(address, await own_options(broker, mechanism, *user_of(mechanism))) as connection:
            await connection.call(METADATA, {"topics": ()}, version=1)
        with pytest.raises(Unreachable, match="Authentication failed"):
            async with connected(address, await own_options(broker, mechanism, "nemo", "x")):
                pass


def test_before_the_login_only_versions_are_answered_and_anything_else_ends_the_connection(
    broker: SecuredBroker,
) -> None:
    with RawClient(broker.facts["ports"]["LOGIN"]) as client:
        assert client.call(API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}).api_keys
        handshake = client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.none, MECHANISMS)
        client.send_call(METADATA, 1, {"topics": ()})
        assert client.read_frame() == b""
    with RawClient(broker.facts["ports"]["LOGIN"]) as client:
        refused = client.call(SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
        assert (refused.error_code, refused.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, MECHANISMS)


def test_a_client_of_before_saslauthenticate_sends_its_messages_bare(broker: SecuredBroker) -> None:
    with RawClient(broker.facts["ports"]["LOGIN"]) as client:
        assert client.call(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}).error_code is ErrorCode.none
        token = f"\0bob\0{PASSWORDS['bob']}".encode()
        client.send_bytes(len(token).to_bytes(4, "big") + token)
        assert client.read_frame() == b""
        assert client.call(METADATA, 1, {"topics": ()}).brokers


def test_a_session_ends_unless_the_client_logs_in_again(broker: SecuredBroker) -> None:
    token = f"\0bob\0{PASSWORDS['bob']}".encode()
    with RawClient(broker.facts["ports"]["BRIEF"]) as client:
        client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert answer.session_lifetime.total_seconds() == 1.5

        def has_ended() -> bool:
            with contextlib.suppress(ConnectionError, MalformedResponse):
                return not client.call(METADATA, 1, {"topics": ()}).brokers
            return True

        eventually_sync(has_ended)


def test_librdkafka_logs_in_again_before_its_session_ends(broker: SecuredBroker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.at("BRIEF"), **rdkafka("PLAIN", "alice", PASSWORDS["alice"])})
    errors: list[str] = []
    before = logins(broker, "BRIEF")

    def is_again() -> bool:
        producer.produce("brief", b"x", on_delivery=lambda error, _: errors.append(str(error)) if error else None)
        producer.flush(10)
        return logins(broker, "BRIEF") >= before + 3

    eventually_sync(is_again)
    assert errors == []


def logins(broker: SecuredBroker, listener: str) -> int:
    """The number of successful logins at a listener, by the metrics page."""
    import urllib.request

    with urllib.request.urlopen(f"http://{LOOPBACK}:{broker.facts['metrics']}/metrics") as page:
        text = page.read().decode()
    label = f'kafka_server_socket_server_metrics_successful_authentication_total{{listener="{listener}"}}'
    return next((int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(label)), 0)


def by_token(token: str) -> dict[str, Any]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 300),
    }


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_librdkafka_logs_in_by_a_signed_token_also_after_the_keys_are_renewed(
    broker: SecuredBroker, algorithm: str
) -> None:
    librdkafka_produce(broker.at("TOKENS"), "by-token", RECORDS, settings=by_token(broker.signer.token(algorithm)))
    read = broker.process.log_text().count("keys of tokens were read")
    broker.signer.renew()
    eventually_sync(lambda: broker.process.log_text().count("keys of tokens were read") > read)
    librdkafka_produce(broker.at("TOKENS"), "by-token", RECORDS, settings=by_token(broker.signer.token(algorithm)))


def test_librdkafka_is_refused_with_a_token_of_another_audience(broker: SecuredBroker) -> None:
    from confluent_kafka import Producer

    errors: list[str] = []
    settings = by_token(broker.signer.token(aud="other"))
    producer = Producer(
        {"bootstrap.servers": broker.at("TOKENS"), **settings, "error_cb": lambda error: errors.append(error.name())}
    )

    def is_refused() -> bool:
        producer.poll(0.1)
        return "_AUTHENTICATION" in errors

    eventually_sync(is_refused)
    eventually_sync(lambda: "its audience is another one" in broker.process.log_text())


async def test_our_own_client_renews_its_login_by_a_token_on_the_same_connection(broker: SecuredBroker) -> None:
    # the broker closes a connection for a request that it reads after the end of a session, and the
    # client renews a login after 85 to 95 % of it: in a longer session more time remains
    with TokenServer(broker.signer, life_s=4) as server:
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": server.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT,
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }
        options = secured(patient_options(), load_security(given))
        async with connected(parse_host_port(broker.at("TOKENS")), options) as connection:

            async def is_renewed() -> bool:
                await asyncio.gather(*(connection.call(METADATA, {"topics": ()}, version=1) for _ in range(20)))
                return len(server.issued) >= 2

            await eventually(is_renewed)
            server.refusal = (503, "temporarily_unavailable")
            await eventually(lambda: not connection.is_open)


async def test_our_own_client_is_refused_with_a_token_that_another_key_signed(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TokenSigner(tmp_path / "keys.json").token())
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
    }
    with pytest.raises(Unreachable, match="its signature is wrong"):
        async with connected(parse_host_port(broker.at("TOKENS")), secured(patient_options(), load_security(given))):
            pass
