"""Apache Kafka's own Java programs: the console clients with the admin tools, and the programs of
its system tests.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from deploy import jar_sets
from tests.compatibility.cells import BASICS, Check, Column, NotOffered, Row
from tests.compatibility.checks import OffersNothing, Read, TopicShape, row_of, values
from tests.compatibility.commands import WITHIN_S, lines, run
from tests.compatibility.site import Site
from tests.support.clients.java_clients import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    PERFORMANCE_PRODUCER,
    TOPICS,
    TRANSACTIONAL_COPIER,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    KafkaPrograms,
)
from tests.support.eventually import eventually_sync

RETENTION = "retention.ms"
RECORDS = 100


def version() -> str:
    """Of the release that all of them are from."""
    return f"Apache Kafka {jar_sets.KAFKA.version}"


def missing() -> str:
    """Whether they have been fetched."""
    if jar_sets.KAFKA.is_there:
        return ""
    return f"Apache Kafka {jar_sets.KAFKA.version} is not in the parts folder: `make setup-java` fetches it by Maven"


def java(main_class: str, *arguments: str, given: bytes = b"") -> bytes:
    """Run one of them to its end."""
    return run(KafkaPrograms().command(main_class, *arguments), given)


def events(printed: bytes) -> list[dict[str, Any]]:
    """The output of a verifiable program, one JSON object on each line."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith(b"{")]


class Console(OffersNothing):
    """kafka-console-producer, kafka-console-consumer, kafka-topics, kafka-configs,
    kafka-consumer-groups.
    """

    name = "Java console clients and tools"

    def version(self) -> str:
        return version()

    def missing(self) -> str:
        return missing()

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        settings = ["--command-property", "acks=all"]
        java(CONSOLE_PRODUCER, "--bootstrap-server", servers, "--topic", topic, *settings, given=lines(values))

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        return self._read(
            servers, topic, count, "--partition", "0", "--offset", "earliest", "--isolation-level", isolation
        )

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        settings = ["--command-property", f"group.protocol={protocol}"]
        return self._read(servers, topic, count, "--group", group, "--from-beginning", *settings)

    def _read(self, servers: str, topic: str, count: int, *more: str) -> list[Read]:
        printed = ["--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"]
        bounds = ["--max-messages", str(count), "--timeout-ms", str(WITHIN_S * 1000)]
        found = []
        output = java(CONSOLE_CONSUMER, "--bootstrap-server", servers, "--topic", topic, *bounds, *printed, *more)
        for line in output.splitlines():
            fields = dict(field.split(b":", 1) for field in line.split(b"\t")[:2])
            value = line.split(b"\t")[2]
            found.append(Read(int(fields[b"Partition"]), int(fields[b"Offset"]), value))
        return found

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        shape = ["--partitions", str(partitions), "--config"]
        self._topics(servers, "--create", "--topic", topic, *shape, f"{RETENTION}={retention_ms}")

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        printed = self._topics(servers, "--describe", "--topic", topic)
        first = dict(field.split(": ", 1) for field in printed.splitlines()[0].split("\t") if ": " in field)
        configs = dict(config.split("=", 1) for config in first["Configs"].split(","))
        return TopicShape(int(first["PartitionCount"]), int(first["ReplicationFactor"]), configs[RETENTION].strip())

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        entity = ["--entity-type", "topics", "--entity-name", topic]
        java(CONFIGS, "--bootstrap-server", servers, *entity, "--alter", "--add-config", f"{RETENTION}={retention_ms}")

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        self._topics(servers, "--alter", "--topic", topic, "--partitions", str(total))

    def list_groups(self, servers: str) -> set[str]:
        return set(java(CONSUMER_GROUPS, "--bootstrap-server", servers, "--list").decode().split())

    def delete_topic(self, servers: str, topic: str) -> None:
        self._topics(servers, "--delete", "--topic", topic)

    def _topics(self, servers: str, *arguments: str) -> str:
        return java(TOPICS, "--bootstrap-server", servers, *arguments).decode()


def check_verifiable_producer(site: Site) -> str:
    """Every acknowledgement that it reports is a record in the log at that offset."""
    topic = site.create_topic("verifiable")
    amount = ["--max-messages", str(RECORDS), "--acks", "-1"]
    printed = java(VERIFIABLE_PRODUCER, "--bootstrap-server", site.bootstrap_servers, "--topic", topic, *amount)
    sent = [event for event in events(printed) if event["name"] == "producer_send_success"]
    acknowledged = {int(event["offset"]): str(event["value"]).encode() for event in sent}
    assert acknowledged == dict(site.read(topic)) == dict(enumerate(b"%d" % number for number in range(RECORDS)))
    return f"{RECORDS} acknowledgements, each a record at the offset it named"


def check_verifiable_consumer_reads(site: Site) -> str:
    """The records that it reports as read are the records in the log."""
    seen = [event for event in _verifiably_consumed(site, "classic") if event["name"] == "record_data"]
    found = [(event["partition"], event["offset"], event["value"]) for event in seen]
    wanted = [(partition, offset, f"value-{partition * 50 + offset}") for partition in range(2) for offset in range(50)]
    assert sorted(found) == wanted, f"{len(found)} records"
    return f"{RECORDS} records of two partitions with their offsets"


def check_verifiable_consumer_joins(site: Site) -> str:
    """It is assigned the partitions and commits what it read, by either protocol."""
    for protocol in ("classic", "consumer"):
        seen = _verifiably_consumed(site, protocol)
        assigned = [event["partitions"] for event in seen if event["name"] == "partitions_assigned"]
        assert sorted(each["partition"] for partitions in assigned for each in partitions) == [0, 1], assigned
        committed = [event for event in seen if event["name"] == "offsets_committed"]
        assert all(event["success"] for event in committed), committed
    return "assigned, commits each batch (classic, consumer protocol)"


def _verifiably_consumed(site: Site, protocol: str) -> list[dict[str, Any]]:
    topic, group = site.create_topic("verifiable", partitions=2), site.fresh("verifiers")
    for partition in range(2):
        site.write(topic, values(partition * 50, partition * 50 + 50), partition=partition)
    arguments = ["--topic", topic, "--group-id", group, "--group-protocol", protocol, "--verbose"]
    command = KafkaPrograms().command(VERIFIABLE_CONSUMER, "--bootstrap-server", site.bootstrap_servers, *arguments)
    output = site.scratch / f"{group}.log"
    with output.open("wb") as log:
        consumer = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        # it continues until it is stopped, and then leaves the group in order
        eventually_sync(lambda: sum(site.committed(group, topic).values()) == RECORDS, WITHIN_S * 1000)
        consumer.terminate()
        consumer.wait(WITHIN_S)
    finally:
        consumer.kill()
    return events(output.read_bytes())


def check_copier(site: Site) -> str:
    """Kafka's transactional copier with random aborts, read_committed: everything copied once,
    offsets committed.
    """
    source, target, group = site.create_topic("source"), site.create_topic("target"), site.fresh("copiers")
    site.write(source, values(0, RECORDS))
    arguments = ["--input-topic", source, "--input-partition", "0", "--output-topic", target, "--group-mode"]
    arguments += ["--consumer-group", group, "--transactional-id", site.fresh("copier"), "--transaction-size", "10"]
    arguments += ["--enable-random-aborts", "--use-group-metadata"]
    java(TRANSACTIONAL_COPIER, "--broker-list", site.bootstrap_servers, *arguments)
    copied = [read.value for read in Console().consume(site.bootstrap_servers, target, RECORDS, "read_committed")]
    assert copied == values(0, RECORDS), f"{len(copied)} committed records, {copied[:3]} ..."
    site.wait_committed(group, source, RECORDS)
    return f"{RECORDS} records copied once under random aborts, with the group's offsets"


def check_performance_producer(site: Site) -> str:
    """As many records as it says, each of the size that was asked for."""
    found = _performed(site)
    assert len(found) == RECORDS, len(found)
    return f"{RECORDS} records of the size asked for"


def check_performance_transactions(site: Site) -> str:
    """The same in transactions of a few milliseconds."""
    found = _performed(site, "--transactional-id", site.fresh("performer"), "--transaction-duration-ms", "10")
    assert len(found) == RECORDS, len(found)
    return f"{RECORDS} records in transactions of 10 ms"


def _performed(site: Site, *more: str) -> list[bytes]:
    topic, size = site.create_topic("performed"), 64
    amount = ["--num-records", str(RECORDS), "--record-size", str(size), "--throughput", "-1", *more]
    printed = java(PERFORMANCE_PRODUCER, "--bootstrap-server", site.bootstrap_servers, "--topic", topic, *amount)
    assert f"{RECORDS} records sent".encode() in printed, printed
    found = [value for _, value in site.read(topic)]
    assert all(len(value) == size for value in found)
    return found


def _row(name: str, offered: Mapping[Column, Check], reason: str) -> Row:
    cells: dict[Column, Check | NotOffered] = {column: NotOffered(reason) for column in BASICS}
    return Row(name=name, version=version, missing=missing, cells={**cells, **offered})


def rows() -> tuple[Row, ...]:
    """Console clients, then the programs that Kafka's system tests drive."""
    no_transactions = {Column.TRANSACTIONS: "the console producer has none; ProducerPerformance and the copier do"}
    return (
        row_of(Console(), not_offered=no_transactions, protocols=("classic", "consumer")),
        _row("VerifiableProducer", {Column.PRODUCE: check_verifiable_producer}, "it only produces"),
        _row(
            "VerifiableConsumer",
            {Column.CONSUME: check_verifiable_consumer_reads, Column.GROUPS: check_verifiable_consumer_joins},
            "it only consumes",
        ),
        _row("TransactionalMessageCopier", {Column.TRANSACTIONS: check_copier}, "it only copies, in transactions"),
        _row(
            "ProducerPerformance",
            {Column.PRODUCE: check_performance_producer, Column.TRANSACTIONS: check_performance_transactions},
            "it only produces",
        ),
    )
