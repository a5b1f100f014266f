"""Clients of other languages, driven by small programs in `programs/`: franz-go and Sarama (Go),
KafkaJS (Node).

Every program understands the same commands, each with the servers first:

    produce TOPIC                                   values on standard input, one a line
    consume TOPIC ISOLATION COUNT                   prints "partition offset value"
    join TOPIC GROUP COUNT                          the same as a member of a group; commits what it printed, then leaves
    transact TOPIC ID                               values on standard input; `!commit` or `!abort` ends a transaction
    copy SOURCE TARGET GROUP ID COUNT
    create-topic TOPIC PARTITIONS RETENTION-MS      as many replicas as the site gives
    describe-topic TOPIC                            prints "partitions replicas retention-ms"
    set-retention TOPIC RETENTION-MS, add-partitions TOPIC TOTAL
    list-groups TOPIC, delete-topic TOPIC
"""

from __future__ import annotations

from collections.abc import Sequence

from deploy import client_programs
from deploy.client_programs import ClientPrograms
from tests.compatibility.cells import Row
from tests.compatibility.checks import Read, TopicShape, row_of
from tests.compatibility.commands import lines, reads, run


class WrittenProgram:
    """One of our programs over a client library."""

    def __init__(self, name: str, library: str, programs: ClientPrograms, program: str) -> None:
        self.name = name
        self._library = library
        self._programs = programs
        self._program = program

    def version(self) -> str:
        """The version that its lock file pins."""
        return f"{self.name} {self._programs.pinned(self._library)}"

    def missing(self) -> str:
        """Whether its program has been built."""
        return self._programs.missing()

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        self._run("produce", servers, topic, given=lines(values))

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        return reads(self._run("consume", servers, topic, isolation, str(count)))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        return reads(self._run("join", servers, topic, group, str(count)))

    def transact(
        self, servers: str, topic: str, identity: str, batches: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        given = [line for values, is_kept in batches for line in (*values, b"!commit" if is_kept else b"!abort")]
        self._run("transact", servers, topic, identity, given=lines(given))

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        self._run("copy", servers, source, target, group, identity, str(count))

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        self._run("create-topic", servers, topic, str(partitions), retention_ms)

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        partitions, replicas, retention_ms = self._run("describe-topic", servers, topic).decode().split()
        return TopicShape(int(partitions), int(replicas), retention_ms)

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        self._run("set-retention", servers, topic, retention_ms)

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        self._run("add-partitions", servers, topic, str(total))

    def list_groups(self, servers: str) -> set[str]:
        return set(self._run("list-groups", servers, "any").decode().split())

    def delete_topic(self, servers: str, topic: str) -> None:
        self._run("delete-topic", servers, topic)

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        return run([*self._programs.command(self._program), *arguments], given)


def rows() -> tuple[Row, ...]:
    """One for each library."""
    go, node = client_programs.GO, client_programs.NODE
    return (
        row_of(
            WrittenProgram("franz-go", "github.com/twmb/franz-go", go, "bin/franz"),
            may_alternate=True,
            may_decompress=True,
        ),
        row_of(
            WrittenProgram("Sarama", "github.com/IBM/sarama", go, "bin/sarama"), may_alternate=True, may_decompress=True
        ),
        row_of(WrittenProgram("KafkaJS", "kafkajs", node, "client.js"), may_alternate=True),
    )
