"""Listeners with TLS and real clients: right and wrong certificates, large requests and answers,
certificates that are replaced while connections go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from runtime.addresses import parse_host_port
from tests.support.clients.java_clients import API_VERSIONS, KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce, sockets_left_open
from tests.support.clients.patient_options import patient_options
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import SecuredBroker
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import make_certificates
from wire.client.connection import connected

pytestmark = pytest.mark.integration

LARGE = [Record(os.urandom(700_000)) for _ in range(12)]
SMALL = [Record(b"value-%d" % number) for number in range(200)]


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    return SecuredBroker(session_processes, tmp_path_factory.mktemp("secured"))


@pytest.mark.parametrize("listener", ["ENCRYPTED", "MUTUAL"])
def test_librdkafka_produces_and_consumes_large_and_small_records(broker: SecuredBroker, listener: str) -> None:
    topic, settings = f"of-{listener.lower()}", broker.librdkafka(is_known=listener == "MUTUAL")
    librdkafka_produce(broker.at(listener), topic, [*LARGE, *SMALL], settings=settings)
    got = librdkafka_consume(broker.at(listener), topic, len(LARGE) + len(SMALL), group=topic, settings=settings)
    assert [record.value for record in got] == [record.value for record in (*LARGE, *SMALL)]


def test_java_s_clients_produce_and_consume_with_a_certificate(broker: SecuredBroker) -> None:
    java, settings = KafkaPrograms(), broker.java(is_known=True)
    values = [b"java-%d" % number for number in range(50)]
    java.produce(broker.at("MUTUAL"), "of-java", values, settings=settings)
    assert java.consume(broker.at("MUTUAL"), "of-java", len(values), settings=settings) == values


async def test_aiokafka_and_kafka_python_read_what_librdkafka_wrote(broker: SecuredBroker) -> None:
    from aiokafka import AIOKafkaConsumer
    from kafka import KafkaConsumer

    await asyncio.to_thread(
        librdkafka_produce, broker.at("ENCRYPTED"), "of-python", SMALL, settings=broker.librdkafka(is_known=False)
    )
    wanted = [record.value for record in SMALL]
    options = {"bootstrap_servers": broker.at("ENCRYPTED"), "security_protocol": "SSL", "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer("of-python", ssl_context=broker.context(is_known=False), **options) as consumer:
        assert [(await consumer.getone()).value for _ in wanted] == wanted

    def read() -> list[bytes]:
        with sockets_left_open():
            consumer = KafkaConsumer("of-python", ssl_context=broker.context(is_known=False), **options)
            try:
                return [next(consumer).value for _ in wanted]
            finally:
                consumer.close()

    assert await asyncio.to_thread(read) == wanted


def test_a_client_without_a_certificate_or_with_a_stranger_s_is_refused(broker: SecuredBroker, tmp_path: Path) -> None:
    stranger = make_certificates(tmp_path / "stranger").client
    port = broker.facts["ports"]["MUTUAL"]
    for own in (None, stranger):
        context = broker.context(is_known=False)
        if own is not None:
            context.load_cert_chain(str(own))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _ask(port, context)
    complaint = KafkaPrograms().refused(
        API_VERSIONS, "--bootstrap-server", broker.at("MUTUAL"), "--command-config", _file(tmp_path, broker)
    )
    assert "SslAuthenticationException" in complaint


def _ask(port: int, context: ssl.SSLContext) -> None:
    """Send a request. A refused client fails at the handshake, or with TLS 1.3 at the first read
    after it.
    """
    with (
        socket.create_connection((LOOPBACK, port)) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK) as tls,
    ):
        tls.sendall(b"\0\0\0\x0a" + bytes(10))
        assert tls.recv(1) == b"never"


def _file(directory: Path, broker: SecuredBroker) -> str:
    path = directory / "client.properties"
    options = {**broker.java(is_known=False), "default.api.timeout.ms": "60000", "request.timeout.ms": "50000"}
    path.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    return str(path)


async def test_replaced_certificates_reach_new_connections_and_leave_those_that_are_there(
    processes: Processes, tmp_path: Path
) -> None:
    broker = SecuredBroker(processes, tmp_path)
    address = parse_host_port(broker.at("ENCRYPTED"))
    async with connected(address, patient_options(ssl_context=broker.context(is_known=False))) as before:
        other = make_certificates(tmp_path / "other")
        broker.certificates.broker.write_text("-----BEGIN half of a file")
        await eventually(lambda: "changed certificates cannot be used" in broker.process.log_text())
        await before.call(3, {"topics": ()}, version=1)
        incoming = broker.certificates.broker.with_name("incoming")
        shutil.copyfile(other.broker, incoming)
        incoming.replace(broker.certificates.broker)
        trusting = ssl.create_default_context(cafile=str(other.authority))

        async def is_served() -> bool:
            with contextlib.suppress(Exception):
                async with connected(address, patient_options(ssl_context=trusting)):
                    return True
            return False

        await eventually(is_served)
        await before.call(3, {"topics": ()}, version=1)

        third = make_certificates(tmp_path / "third")
        key = "listener.name.encrypted.ssl.keystore.location"
        for name, value, problem in (
            (key, str(tmp_path / "nowhere.pem"), f"Invalid value {tmp_path}/nowhere.pem for configuration {key}"),
            ("listener.name.encrypted.ssl.keystore.password", "secret", "a broker reads it from its own file"),
        ):
            with pytest.raises(KafkaException, match=re.escape(problem)):
                await asyncio.to_thread(alter, broker, name, value)
        await asyncio.to_thread(alter, broker, key, str(third.broker))
        trusting = ssl.create_default_context(cafile=str(third.authority))
        await eventually(is_served)
        await before.call(3, {"topics": ()}, version=1)
        assert await asyncio.to_thread(described, broker, key) == str(third.broker)


def alter(broker: SecuredBroker, key: str, value: str) -> None:
    """Set one of the broker's own configs by IncrementalAlterConfigs. Raises KafkaException."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("broker", "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.at("CLIENT")})
    admin.incremental_alter_configs([resource])[resource].result(120)


def described(broker: SecuredBroker, key: str) -> str | None:
    resource = ConfigResource("broker", "1")
    admin = AdminClient({"bootstrap.servers": broker.at("CLIENT")})
    return str(admin.describe_configs([resource])[resource].result(120)[key].value)
