"""The stories of single features that some clients have, each compared with the site's state or
with Apache Kafka's answer.

The features that a client can be asked to show; the tables of `rows` list the clients with each
call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from deploy import client_programs
from tests.compatibility import java_programs
from tests.compatibility.cells import Check, Column, Row
from tests.compatibility.checks import RECORDS, Read, compare_compressed, compressing_topics, values
from tests.compatibility.python_clients import WITHIN_S, KafkaPython, Librdkafka
from tests.compatibility.site import Site
from tests.support.clients.java_clients import CONFIGS, TOPICS
from tests.support.eventually import eventually_sync

JAVA_CLIENT: Final = client_programs.SOURCES / "java" / "Client.java"
COMMITTED_OFFSET: Final = 7
JAVA_ALTERNATIONS: Final = 120
NOT_BY_ID: Final = {"Elr", "LastKnownElr", "Configs"}
"""The tool asks another API when it has an id, which does not have these, or asks for configs in
another order.
"""
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    "cluster": frozenset(
        {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"}
    ),
    "topic": frozenset({"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
    "group": frozenset({"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
}
"""What Apache Kafka 4.3 answers without an authorizer."""


# --- Java


def java_client(command: str, site: Site, *arguments: str) -> list[str]:
    """The output of our program over the Java clients, line by line."""
    return java_programs.java(str(JAVA_CLIENT), command, site.bootstrap_servers, *arguments).decode().splitlines()


def check_java_ids(site: Site) -> str:
    """A topic is described and deleted by its id, and unknown afterwards."""
    topic = site.create_topic("by-id")
    assert java_client("by-id", site, topic) == [topic, "unknown"]
    assert topic not in site.topics()
    return "describes and deletes a topic by its id"


def check_tool_ids(site: Site) -> str:
    """kafka-topics describes a topic by the id that it says itself."""
    topic = site.create_topic("by-id", partitions=2)
    server = ("--bootstrap-server", site.bootstrap_servers, "--describe")
    first = _described(java_programs.java(TOPICS, *server, "--topic", topic))
    again = _described(java_programs.java(TOPICS, *server, "--topic-id", first[0]["TopicId"]))
    for by_name, by_id in zip(first, again, strict=True):
        compared = by_name.keys() - NOT_BY_ID
        assert {key: by_id.get(key) for key in compared} == {key: by_name[key] for key in compared}, (by_id, by_name)
    return "describes a topic by its id"


def _described(printed: bytes) -> list[dict[str, str]]:
    """The fields of kafka-topics' lines: the topic, then its partitions."""
    lines = [line.strip().split("\t") for line in printed.decode().splitlines() if line.strip()]
    return [{key: value.strip() for key, _, value in (field.partition(":") for field in line)} for line in lines]


def check_java_patterns(site: Site) -> str:
    """The broker matches the pattern."""
    wanted, pattern = _matched_topics(site)
    lines = java_client("match", site, pattern, site.fresh("matchers"), str(len(wanted) * 10))
    assert sorted(line.split()[0] for line in lines) == sorted(wanted * 10), lines[:3]
    return "a pattern that the broker matches, with two unbounded repetitions"


def check_java_commits(site: Site) -> str:
    """The next consumer finds the commits of a consumer with manually assigned partitions."""
    topic, group = site.create_topic("assigned"), site.fresh("assigned")
    site.write(topic, values(0, 10))
    assert java_client("commit", site, topic, group, str(COMMITTED_OFFSET)) == [str(COMMITTED_OFFSET)]
    assert site.committed(group, topic) == {0: COMMITTED_OFFSET}
    return "assigns itself a partition, commits, reads the offset back (consumer protocol)"


def check_java_alternations(site: Site) -> str:
    """A new transaction does not wait for the markers of the one before, after a commit and after
    an abort.
    """
    topics = [site.create_topic("alternated", partitions=4) for _ in range(2)]
    java_client("alternate", site, *topics, site.fresh("alternating"), str(JAVA_ALTERNATIONS))
    for topic in topics:
        for partition in range(4):
            found = [value for _, value in site.read(topic, partition)]
            assert found == values(0, JAVA_ALTERNATIONS), f"{topic}-{partition}: {len(found)} records"
    return f"{JAVA_ALTERNATIONS} transactions over two topics of four partitions, every second one aborted"


def check_java_compression(site: Site) -> str:
    """As the other clients."""
    topics = compressing_topics(site)
    lines = java_client("copy-values", site, str(RECORDS), *topics)
    assert lines == [f"{topic} {value.decode()}" for topic in topics for value in values(0, RECORDS)], lines[:3]
    return compare_compressed(site, topics)


def check_java_operations(site: Site) -> str:
    """Of the cluster, a topic and a group."""
    topic, group = site.create_topic("operated"), site.fresh("operators")
    site.commit(group, topic)
    reported = dict(line.split(" ", 1) for line in java_client("operations", site, topic, group))
    _compare_operations({of: set(names.split()) for of, names in reported.items()})
    return "of the cluster, a topic and a group, as Apache Kafka without an authorizer"


def check_group_configs(site: Site) -> str:
    """kafka-configs sets, describes and removes a group's configs."""
    group = site.fresh("configured")
    entity = ("--bootstrap-server", site.bootstrap_servers, "--entity-type", "groups", "--entity-name", group)

    def described() -> str:
        return java_programs.java(CONFIGS, *entity, "--describe").decode()

    assert "consumer.session.timeout.ms=50000" not in described()
    java_programs.java(CONFIGS, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in described(), described()
    java_programs.java(CONFIGS, *entity, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=50000" not in described(), described()
    return "sets, describes and removes a config of a group"


# --- librdkafka and kafka-python


def check_librdkafka_ids(client: Librdkafka, site: Site) -> str:
    """It learns the right id, and a member of a KIP-848 group finds its partitions by that."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    topic = site.create_topic("by-id")
    site.write(topic, values(0, 10))
    admin = AdminClient({"bootstrap.servers": site.bootstrap_servers})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(WITHIN_S).topic_id
    reported = found.get_most_significant_bits() & (1 << 64) - 1, found.get_least_significant_bits() & (1 << 64) - 1
    wanted = site.topic_id(topic).int
    assert reported == (wanted >> 64, wanted & (1 << 64) - 1), f"{found} instead of {site.topic_id(topic)}"
    read = client.join(site.bootstrap_servers, topic, site.fresh("by-id"), 10, "consumer")
    assert read == [Read(0, number, value) for number, value in enumerate(values(0, 10))], read[:3]
    return "describes the id of a topic, and reads it as a member that is assigned it by its id"


def check_librdkafka_patterns(_: Librdkafka, site: Site) -> str:
    """The broker matches the pattern, also if a subscription is dropped and renewed at once."""
    from confluent_kafka import Consumer

    wanted, pattern = _matched_topics(site)
    settings = {"group.id": site.fresh("matchers"), "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": site.bootstrap_servers, **settings})
    found: list[str] = []
    try:
        consumer.subscribe([pattern])
        consumer.unsubscribe()
        consumer.subscribe([pattern])

        def is_read() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(str(message.topic()))
            return len(found) == len(wanted) * 10

        eventually_sync(is_read, WITHIN_S * 1000)
    finally:
        consumer.close()
    assert sorted(found) == sorted(wanted * 10)
    return "a pattern that the broker matches, with two unbounded repetitions, subscribed twice"


def check_librdkafka_commits(_: Librdkafka, site: Site) -> str:
    """As the Java client."""
    from confluent_kafka import Consumer, TopicPartition

    topic, group = site.create_topic("assigned"), site.fresh("assigned")
    site.write(topic, values(0, 10))
    settings = {"bootstrap.servers": site.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
    for _round in range(2):
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            if _round == 0:
                consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED_OFFSET)], asynchronous=False)
            (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
            assert (kept.error, kept.offset) == (None, COMMITTED_OFFSET), kept
        finally:
            consumer.close()
    assert site.committed(group, topic) == {0: COMMITTED_OFFSET}
    return "assigns itself a partition, commits, reads the offset back (consumer protocol)"


def check_librdkafka_operations(_: Librdkafka, site: Site) -> str:
    """Of the cluster, a topic and a group."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    topic, group = site.create_topic("operated"), site.fresh("operators")
    site.commit(group, topic)
    admin = AdminClient({"bootstrap.servers": site.bootstrap_servers})
    asked: dict[str, Any] = {"include_authorized_operations": True}
    found = {
        "cluster": admin.describe_cluster(**asked).result(WITHIN_S),
        "topic": admin.describe_topics(TopicCollection([topic]), **asked)[topic].result(WITHIN_S),
        "group": admin.describe_consumer_groups([group], **asked)[group].result(WITHIN_S),
    }
    _compare_operations(
        {of: {each.name for each in described.authorized_operations or ()} for of, described in found.items()}
    )
    return "of the cluster, a topic and a group, as Apache Kafka without an authorizer"


def check_kafka_python_operations(_: KafkaPython, site: Site) -> str:
    """Of a group."""
    from kafka.admin import KafkaAdminClient

    topic, group = site.create_topic("operated"), site.fresh("operators")
    site.commit(group, topic)
    admin = KafkaAdminClient(bootstrap_servers=site.bootstrap_servers)
    try:
        described = admin.describe_groups([group], include_authorized_operations=True)[group]
    finally:
        admin.close()
    _compare_operations({"group": {_name(each) for each in described["authorized_operations"]}}, only="group")
    return "of a group, as Apache Kafka without an authorizer"


# --- shared


def _matched_topics(site: Site) -> tuple[list[str], str]:
    """Topics with ten records each, and a pattern that matches just them among those of the
    site.
    """
    prefix = site.fresh("matched")
    topics = [site.create_topic(f"{prefix}-{name}") for name in ("rr3-first", "r3-second")]
    others = [site.create_topic(f"{prefix}-{name}") for name in ("s3-other", "r4-other")]
    for topic in (*topics, *others):
        site.write(topic, values(0, 10))
    return topics, f"^{prefix}-.*[r]+3-.*[0-9]+.*$"


def _compare_operations(found: Mapping[str, set[str]], only: str | None = None) -> None:
    wanted = {of: names for of, names in OPERATIONS.items() if only in (None, of)}
    assert found == wanted, {of: sorted(names) for of, names in found.items()}


def _name(operation: Any) -> str:
    return str(getattr(operation, "name", operation)).rpartition(".")[2].upper()


def _of(check: Callable[[Any, Site], str], client: object) -> Check:
    return lambda site: check(client, site)


def rows() -> tuple[Row, ...]:
    """Our program over the Java clients."""
    cells: dict[Column, Check] = {
        Column.TOPIC_IDS: check_java_ids,
        Column.PATTERNS: check_java_patterns,
        Column.ASSIGNED: check_java_commits,
        Column.ALTERNATIONS: check_java_alternations,
        Column.OPERATIONS: check_java_operations,
        Column.COMPRESSION: check_java_compression,
    }
    return (Row(name="Java clients", version=java_programs.version, missing=java_programs.missing, cells=cells),)


FEATURES: Final[Mapping[str, Mapping[Column, Check]]] = {
    Librdkafka.name: {
        Column.TOPIC_IDS: _of(check_librdkafka_ids, Librdkafka()),
        Column.PATTERNS: _of(check_librdkafka_patterns, Librdkafka()),
        Column.ASSIGNED: _of(check_librdkafka_commits, Librdkafka()),
        Column.OPERATIONS: _of(check_librdkafka_operations, Librdkafka()),
    },
    KafkaPython.name: {Column.OPERATIONS: _of(check_kafka_python_operations, KafkaPython())},
    java_programs.Console.name: {Column.TOPIC_IDS: check_tool_ids, Column.GROUP_CONFIGS: check_group_configs},
}
"""Cells of rows that are declared elsewhere, by the row's name."""
