"""The clients of the security matrix that are programs: Apache Kafka's console programs, and ours
over the libraries of Go and Node. `tests/compatibility/commands.py` bounds the time of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from deploy import apache_kafka, parts
from deploy.client_programs import ClientPrograms
from tests.compatibility import java_programs
from tests.compatibility.commands import CommandFailed, lines, reads, run
from tests.compatibility.security.credentials import Credentials
from tests.compatibility.security.secured_client import GROUP
from tests.support.clients.java_clients import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    PERFORMANCE_PRODUCER,
    TOPICS,
)

_LOG_JARS = ("slf4j-api-2.0.17.jar", "log4j-slf4j2-impl-2.25.4.jar")
_LOGGING = """\
status=off
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%m%n%throwable
rootLogger.level=error
rootLogger.appenderRef.err.ref=err
"""


def _logging_program(program: str, *arguments: str, options: tuple[str | Path, ...]) -> list[str]:
    """The command of a console program with a log. The consumer reports a denied group only in its
    log, and Apache Kafka's client jars have a logger that writes nothing.
    """
    *java_options, logging = options
    jvm = (*apache_kafka.SMALL_JVM, f"-Dlog4j2.configurationFile={logging}", *map(str, java_options))
    command = apache_kafka.program(program, *arguments, jvm=jvm)
    place = command.index("-cp") + 1
    # before Apache Kafka's own: the first logger of a class path counts
    jars = [jar for jar in parts.zookeeper_jars() if jar.name in _LOG_JARS]
    command[place] = os.pathsep.join((*map(str, jars), command[place]))
    return command


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
        bounds = ("max.block.ms=30000", "delivery.timeout.ms=30000", "request.timeout.ms=29000")
        quick = ("--sync", *(part for bound in bounds for part in ("--command-property", bound)))
        self._run(CONSOLE_PRODUCER, servers, topic, credentials, *quick, given=lines(values))

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        with NamedTemporaryFile("wb") as payloads:
            payloads.write(lines(values))
            payloads.flush()
            amount = ("--num-records", str(len(values)), "--throughput", "-1", "--payload-file", payloads.name)
            transaction = ("--transactional-id", identity, "--transaction-duration-ms", "60000")
            self._run(PERFORMANCE_PRODUCER, servers, topic, credentials, *amount, *transaction)

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        self._run(TOPICS, servers, topic, credentials, "--create", "--partitions", "1")

    def consume(
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        begin = ("--from-beginning", "--max-messages", str(count), "--group", group, "--timeout-ms", "30000")
        return self._run(CONSOLE_CONSUMER, servers, topic, credentials, *begin).splitlines()

    def _run(
        self, program: str, servers: str, topic: str, credentials: Credentials, *more: str, given: bytes = b""
    ) -> bytes:
        with NamedTemporaryFile("w", suffix=".properties") as file:
            file.write("".join(f"{key}={value}\n" for key, value in credentials.java().items()))
            file.flush()
            arguments = ("--bootstrap-server", servers, "--topic", topic, "--command-config", file.name, *more)
            logging = Path(file.name).with_suffix(".log4j2.properties")
            logging.write_text(_LOGGING)
            command = _logging_program(program, *arguments, options=(*credentials.java_options().split(), logging))
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
                logging.unlink(missing_ok=True)


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

    def consume(
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        printed = self._run(credentials, "join", servers, topic, group, str(count))
        return [read.value for read in reads(printed)]

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        self._run(credentials, "transact", servers, topic, identity, given=lines([*values, b"!commit"]))

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        self._run(credentials, "create-topic", servers, topic, "1", "3600000")

    def _run(self, credentials: Credentials, *arguments: str, given: bytes = b"") -> bytes:
        environment = {**os.environ, "KAFKA_SECURITY": credentials.as_json()}
        return run([*self._programs.command(self._program), *arguments], given, environment=environment)
