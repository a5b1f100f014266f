"""Other projects' clients behind one interface, so that one story runs with each: kcat, librdkafka,
aiokafka, kafka-python, Java.

Each produces values in order to partition 0 with acks=all and reads in a group, committing what it
read. A client whose program is not on the machine says so (`missing`), and its tests are skipped
with that reason.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from typing import Protocol

from deploy import jar_sets
from tests.support.clients.java_clients import CONSOLE_CONSUMER, KafkaPrograms
from tests.support.clients.kafka_clients import (
    Record,
    aiokafka_consume,
    aiokafka_produce,
    kafka_python_consume,
    kafka_python_produce,
    librdkafka_consume,
    librdkafka_produce,
)

WITHIN_S = 120

Read = tuple[int, bytes]
"""Offset and value of a record."""


class ForeignClient(Protocol):
    """One kind of client. Calls block until done, and raise AssertionError or the client's own
    error when they fail.
    """

    name: str

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        """Send these and wait until all are acknowledged."""

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        """Read so many as a member of the group, from the start where it has no offset, and
        commit.
        """


class Kcat:
    """The command line of librdkafka, of the version that the machine has."""

    name = "kcat"

    @property
    def missing(self) -> str:
        return "" if shutil.which("kcat") else "kcat is not on PATH (Debian: apt-get install kcat)"

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        given = b"".join(value + b"\n" for value in values)
        self._run(["-P", "-b", bootstrap_servers, "-t", topic, "-p", "0", "-X", "acks=all"], given)

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        arguments = ["-b", bootstrap_servers, "-G", group, "-c", str(count), "-q", "-f", "%o %s\n"]
        printed = self._run([*arguments, "-X", "auto.offset.reset=earliest", topic])
        lines = [line.partition(b" ") for line in printed.splitlines()]
        return [(int(offset), value) for offset, _, value in lines]

    def _run(self, arguments: list[str], given: bytes = b"") -> bytes:
        ended = subprocess.run(["kcat", *arguments], input=given, capture_output=True, timeout=WITHIN_S, check=False)
        assert ended.returncode == 0, ended.stderr.decode(errors="replace")
        return ended.stdout


class Librdkafka:
    """confluent-kafka."""

    name = "librdkafka"
    missing = ""

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        librdkafka_produce(bootstrap_servers, topic, _records(values), settings={"enable.idempotence": True})

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        received = librdkafka_consume(bootstrap_servers, topic, count, group=group)
        return [(record.offset, record.value or b"") for record in received]


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"
    missing = ""

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        settings = {"enable_idempotence": True}
        asyncio.run(aiokafka_produce(bootstrap_servers, topic, _records(values), settings=settings))

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        received = asyncio.run(aiokafka_consume(bootstrap_servers, topic, count, group=group))
        return [(record.offset, record.value or b"") for record in received]


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    missing = ""

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        kafka_python_produce(bootstrap_servers, topic, _records(values), settings={"acks": "all"})

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        received = kafka_python_consume(bootstrap_servers, topic, count, group=group)
        return [(record.offset, record.value or b"") for record in received]


class JavaConsole:
    """Apache Kafka's console producer and consumer."""

    name = "java-console"

    @property
    def missing(self) -> str:
        kafka = jar_sets.KAFKA
        return (
            ""
            if kafka.is_there
            else f"Apache Kafka {kafka.version} is not there: `make setup-java` fetches it by Maven"
        )

    def produce(self, bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
        KafkaPrograms().produce(bootstrap_servers, topic, values)

    def consume(self, bootstrap_servers: str, topic: str, group: str, count: int) -> list[Read]:
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", group, "--from-beginning"]
        arguments += ["--max-messages", str(count), "--timeout-ms", str(WITHIN_S * 1000)]
        arguments += ["--formatter-property", "print.offset=true"]
        lines = [line.partition(b"\t") for line in KafkaPrograms().run(CONSOLE_CONSUMER, *arguments).splitlines()]
        return [(int(offset.removeprefix(b"Offset:")), value) for offset, _, value in lines]


def _records(values: Sequence[bytes]) -> list[Record]:
    return [Record(value=value, partition=0) for value in values]


FOREIGN_CLIENTS: tuple[ForeignClient, ...] = (Kcat(), Librdkafka(), Aiokafka(), KafkaPython(), JavaConsole())
