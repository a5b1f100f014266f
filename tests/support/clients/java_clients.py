"""Apache Kafka's own Java programs against our brokers: console producer and consumer, log dump,
any other tool by its class.

They come by `make setup-java`; the fixture `kafka_programs` skips a test, with the reason, where
they are not. They run one after the other in one JVM (`tool_server.py`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy import apache_kafka
from tests.support.clients.tool_server import run_tool

WITHIN_MS = 240_000

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
TRANSACTIONAL_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PERFORMANCE_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"


class KafkaPrograms:
    """The programs of one Apache Kafka release."""

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """The command line of a program, for a test that starts it as a process."""
        return apache_kafka.program(main_class, *arguments)

    def refused(self, main_class: str, *arguments: str) -> str:
        """The error message of a program that must fail. Raises AssertionError if it does not."""
        ended = run_tool([main_class, *arguments], b"", WITHIN_MS)
        complaint = (ended.stdout + ended.stderr).decode(errors="replace")
        assert ended.returncode != 0, f"{main_class} was expected to fail:\n{complaint}"
        return complaint

    def run(self, main_class: str, *arguments: str, given: bytes = b"", within_ms: float = WITHIN_MS) -> bytes:
        """Run a program to its end with `given` as its input, and return its output. Raises
        AssertionError with its errors when it fails.
        """
        ended = run_tool([main_class, *arguments], given, within_ms)
        complaint = (ended.stdout + ended.stderr).decode(errors="replace")
        assert ended.returncode == 0, f"{main_class} ended with {ended.returncode}:\n{complaint}"
        return ended.stdout

    def run_source(self, file: Path, *arguments: str) -> bytes:
        """Run a program of one Java source file with Kafka's jars, and return its output."""
        ended = subprocess.run(
            self.command(str(file), *arguments), capture_output=True, timeout=WITHIN_MS / 1000, check=False
        )
        assert ended.returncode == 0, f"{file.name} ended with {ended.returncode}:\n{ended.stderr.decode()}"
        return ended.stdout

    def produce(
        self,
        bootstrap_servers: str,
        topic: str,
        values: Sequence[bytes],
        *,
        settings: Mapping[str, str] | None = None,
        within_ms: float = WITHIN_MS,
    ) -> None:
        """Send one record a value (none may hold a line feed) and wait until all are
        acknowledged.
        """
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
        for key, value in (settings or {}).items():
            arguments += ["--command-property", f"{key}={value}"]
        given = b"".join(value + b"\n" for value in values)
        self.run(CONSOLE_PRODUCER, *arguments, given=given, within_ms=within_ms)

    def consume(
        self,
        bootstrap_servers: str,
        topic: str,
        count: int,
        *,
        group: str | None = None,
        settings: Mapping[str, str] | None = None,
        within_ms: float = WITHIN_MS,
    ) -> list[bytes]:
        """The values of the first `count` records, from the beginning or from the group's
        offsets.
        """
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
        arguments += ["--max-messages", str(count), "--timeout-ms", str(int(within_ms))]
        if group is not None:
            arguments += ["--group", group]
        for key, value in (settings or {}).items():
            arguments += ["--command-property", f"{key}={value}"]
        return self.run(CONSOLE_CONSUMER, *arguments, within_ms=within_ms + 10_000).splitlines()

    def check_files(self, files: Sequence[Path]) -> str:
        """The output of Kafka's own tool about segments, indexes and producers' snapshots, when it
        reads every record and every index entry.
        """
        arguments = ["--files", ",".join(map(str, files)), "--deep-iteration"]
        # the sanity check replaces the comparison of index entries with the segment, so both are
        # asked for
        return "".join(
            self.run(DUMP_LOG, *arguments, *more).decode(errors="replace") for more in ((), ("--index-sanity-check",))
        )

    def dump_log(self, segment: Path, *, with_records: bool = False) -> str:
        """The records that Kafka's own tool reads in a segment file."""
        arguments = ["--files", str(segment), "--deep-iteration"]
        if with_records:
            arguments.append("--print-data-log")
        return self.run(DUMP_LOG, *arguments).decode(errors="replace")
