"""The clients of the security matrix: each sends and reads a few records by given credentials, and
raises when it cannot.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

from deploy import client_programs
from deploy.client_programs import ClientPrograms
from tests.compatibility import java_programs, python_clients
from tests.compatibility.commands import CommandFailed, lines, reads, run
from tests.compatibility.security.credentials import Credentials
from tests.support.clients.java_clients import CONSOLE_CONSUMER, CONSOLE_PRODUCER, KafkaPrograms
from tests.support.clients.kafka_clients import sockets_left_open

WITHIN_S = 30
GROUP = "reader"


class SecuredClient(Protocol):
    """A client in a test's hands."""

    name: str

    def version(self) -> str:
        """Name and version of the library."""

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""

    def produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        """Send these to partition 0, and wait until all are acknowledged."""

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:
        """The first values of partition 0."""


class Librdkafka(python_clients.Librdkafka):
    """confluent-kafka, with a callback that gives a token."""

    def options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        """With the errors of a login as exceptions."""

        def refuse(error: object) -> None:
            if "_AUTHENTICATION" in repr(error) or "SSL" in repr(error):
                raise AssertionError(str(error))

        found: dict[str, object] = {
            "bootstrap.servers": servers,
            "error_cb": refuse,
            "log_level": 0,
            **credentials.librdkafka(),
        }
        if credentials.token is not None:
            found["oauth_cb"] = lambda _: (credentials.token_text(), time.time() + 300)
        return found

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        from confluent_kafka import Producer

        failed: list[str] = []
        options = {**self.options(servers, credentials), "message.timeout.ms": 1000 * WITHIN_S // 2}
        producer = Producer(options)
        for value in values:
            producer.produce(
                topic, value, partition=0, on_delivery=lambda error, _: failed.append(error.str()) if error else None
            )
        left = producer.flush(WITHIN_S)
        assert not failed and not left, failed[0] if failed else "not acknowledged in time"  # noqa: PT018

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:  # type: ignore[override]
        from confluent_kafka import Consumer

        options = {**self.options(servers, credentials), "group.id": GROUP, "auto.offset.reset": "earliest"}
        found: list[bytes] = []
        with closing(Consumer(options)) as consumer:
            consumer.subscribe([topic])
            deadline_s = time.monotonic() + WITHIN_S
            while len(found) < count and time.monotonic() < deadline_s:
                for message in consumer.consume(count, 1):
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
        return found


class Aiokafka(python_clients.Aiokafka):
    """aiokafka, with a provider of tokens."""

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        asyncio.run(self._produce(servers, topic, values, credentials))

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:  # type: ignore[override]
        return asyncio.run(self._consume(servers, topic, count, credentials))

    def _options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return credentials.token_text()

        found: dict[str, object] = {"bootstrap_servers": servers, **credentials.python()}
        if credentials.token is not None:
            found["sasl_oauth_token_provider"] = Provider()
        return found

    async def _produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        from aiokafka import AIOKafkaProducer

        async with asyncio.timeout(WITHIN_S):
            producer = AIOKafkaProducer(**self._options(servers, credentials))
            try:
                await producer.start()
                for value in values:
                    await producer.send_and_wait(topic, value, partition=0)
            finally:
                await producer.stop()

    async def _consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer

        options = self._options(servers, credentials)
        consumer = AIOKafkaConsumer(topic, **options, group_id=GROUP, auto_offset_reset="earliest")
        async with asyncio.timeout(WITHIN_S), consumer:
            return [(await consumer.getone()).value for _ in range(count)]


class KafkaPython(python_clients.KafkaPython):
    """kafka-python, with a provider of tokens."""

    def _options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return credentials.token_text()

        found: dict[str, object] = {"bootstrap_servers": servers, **credentials.python()}
        if credentials.token is not None:
            found["sasl_oauth_token_provider"] = Provider()
        return found

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        from kafka import KafkaProducer

        with sockets_left_open():
            producer = KafkaProducer(**self._options(servers, credentials), max_block_ms=1000 * WITHIN_S // 2)
            try:
                for future in [producer.send(topic, value, partition=0) for value in values]:
                    future.get(timeout=WITHIN_S)
            finally:
                producer.close(timeout=1)

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:  # type: ignore[override]
        from kafka import KafkaConsumer

        with sockets_left_open():
            options = self._options(servers, credentials)
            wait = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 1000 * WITHIN_S}
            consumer = KafkaConsumer(topic, **options, **wait, group_id=GROUP)
            try:
                return [record.value for _, record in zip(range(count), consumer, strict=False)]
            finally:
                consumer.close()


class Java:
    """Java's clients in the console programs, whose exit code says nothing about refused
    records.
    """

    name = "Java clients"

    def version(self) -> str:
        return java_programs.version()

    def missing(self) -> str:
        return java_programs.missing()

    def produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        bounds = ("max.block.ms=10000", "delivery.timeout.ms=10000", "request.timeout.ms=9000")
        quick = ("--sync", *(part for bound in bounds for part in ("--command-property", bound)))
        self._run(CONSOLE_PRODUCER, servers, topic, credentials, *quick, given=lines(values))

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:
        begin = ("--from-beginning", "--max-messages", str(count), "--group", GROUP, "--timeout-ms", "30000")
        return self._run(CONSOLE_CONSUMER, servers, topic, credentials, *begin).splitlines()

    def _run(
        self, program: str, servers: str, topic: str, credentials: Credentials, *more: str, given: bytes = b""
    ) -> bytes:
        with NamedTemporaryFile("w", suffix=".properties") as file:
            file.write("".join(f"{key}={value}\n" for key, value in credentials.java().items()))
            file.flush()
            arguments = ("--bootstrap-server", servers, "--topic", topic, "--command-config", file.name, *more)
            command = KafkaPrograms().command(program, *arguments)
            options = credentials.java_options()
            command[1:1] = options.split()
            script = (
                f'"$@" 2> {file.name}.err; code=$?; if grep -q Exception {file.name}.err; then exit 1; fi; exit $code'
            )
            try:
                return run(["bash", "-c", script, "bash", *command], given)
            except CommandFailed as failed:
                said = Path(f"{file.name}.err").read_text(errors="replace").splitlines()
                complaint = next((line.strip() for line in said if "Exception" in line), str(failed))
                raise CommandFailed(complaint) from failed
            finally:
                Path(f"{file.name}.err").unlink(missing_ok=True)


class Program:
    """One of our programs over a library of Go or Node."""

    def __init__(self, name: str, library: str, programs: ClientPrograms, program: str) -> None:
        self.name = name
        self._library = library
        self._programs = programs
        self._program = program

    def version(self) -> str:
        return f"{self.name} {self._programs.pinned(self._library)}"

    def missing(self) -> str:
        return self._programs.missing()

    def produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        self._run(credentials, "produce", servers, topic, given=lines(values))

    def consume(self, servers: str, topic: str, count: int, credentials: Credentials) -> list[bytes]:
        printed = self._run(credentials, "join", servers, topic, GROUP, str(count))
        return [read.value for read in reads(printed)]

    def _run(self, credentials: Credentials, *arguments: str, given: bytes = b"") -> bytes:
        environment = {**os.environ, "KAFKA_SECURITY": credentials.as_json()}
        return run([*self._programs.command(self._program), *arguments], given, environment=environment)


def clients() -> tuple[SecuredClient, ...]:
    """In the order of the page."""
    go, node = client_programs.GO, client_programs.NODE
    return (
        Librdkafka(),
        Java(),
        Aiokafka(),
        KafkaPython(),
        Program("franz-go", "github.com/twmb/franz-go", go, "bin/franz"),
        Program("Sarama", "github.com/IBM/sarama", go, "bin/sarama"),
        Program("KafkaJS", "kafkajs", node, "client.js"),
    )
