"""The topics of a data contract at a cluster: what contradicts the contract, and the creation of
missing topics, for `antipode pipeline topics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cli.shared.kafka_admin import (
    TIMEOUT_S,
    Cluster,
    changed_topic,
    connect,
    is_shown,
    librdkafka_settings,
    reason,
    topic_change_options,
)
from cli.shared.topic_calls import configs_of, offsets_at, partitions_of
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from spark_jobs.pipelines.core.contracts import DataContract, Finding, FoundTopic

POLL_RECORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCheck:
    """The topics that were looked at, the number of their records that were read, and what is wrong
    with them.
    """

    topics: dict[str, FoundTopic]
    records: dict[str, int]
    findings: list[Finding]


def create_missing(contract: DataContract, bootstrap_server: str, *, replication_factor: int) -> list[str]:
    """Create the topics of the contract that are not there, with the smallest number of partitions
    that fits; their names. OperationalFailure.
    """
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    cluster = connect(bootstrap_server)
    missing = [topic for topic in contract.topics if topic.name not in cluster.topics]
    for topic in missing:
        wanted = NewTopic(
            topic.name,
            num_partitions=topic.partitions_min,
            replication_factor=replication_factor,
            config=dict(topic.configs),
        )
        what = f"topic {topic.name} cannot be created"
        for outcome in cluster.client.create_topics([wanted], **topic_change_options()).values():
            changed_topic(outcome, what, client=cluster.client, topic=topic.name)
        if not is_shown(cluster.client, topic.name):
            raise OperationalFailure(f"topic {topic.name} is created, and no broker shows it yet")
    return [topic.name for topic in missing]


def checked_topics(contract: DataContract, bootstrap_server: str, *, records_max: int) -> TopicCheck:
    """Compare the cluster's topics and the newest `records_max` records of each partition with the
    contract. OperationalFailure.
    """
    from spark_jobs.pipelines.core.contracts import FoundTopic, record_findings, topic_findings

    cluster = connect(bootstrap_server)
    names = [name for name in sorted(cluster.topics) if name.startswith(contract.prefix) or contract.topic(name)]
    topics = {
        name: FoundTopic(len(partitions_of(cluster, name)), configs_of(cluster, name, is_set_only=False))
        for name in names
    }
    findings = list(topic_findings(contract, topics))
    counts = {}
    for name in names:
        rules = contract.topic(name)
        if rules is None or not rules.schema:
            continue
        read = list(_newest_records(cluster, bootstrap_server, name, records_max)) if records_max else []
        counts[name] = len(read)
        findings += record_findings(contract, name, read)
    return TopicCheck(topics=topics, records=counts, findings=findings)


def _newest_records(
    cluster: Cluster, bootstrap_server: str, topic: str, records_max: int
) -> Iterator[tuple[int, int, bytes | None]]:
    """Partition, offset and value of the newest records of each partition up to its end."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    starts, ends = offsets_at(cluster, topic, "earliest"), offsets_at(cluster, topic, "latest")
    left = {index for index in ends if ends[index] > starts[index]}
    own: dict[str, Any] = {
        "group.id": "antipode-cli",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(librdkafka_settings(bootstrap_server) | own)
    try:
        consumer.assign(
            [TopicPartition(topic, index, max(starts[index], ends[index] - records_max)) for index in sorted(left)]
        )
        while left:
            found = consumer.consume(POLL_RECORDS, TIMEOUT_S)
            if not found:
                raise OperationalFailure(f"no records of {topic} arrive within {TIMEOUT_S:g} s")
            for message in found:
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    if partition in left:
                        offset = message.offset()
                        assert offset is not None
                        yield partition, offset, message.value()
                        if offset + 1 >= ends[partition]:
                            left.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
                else:
                    raise OperationalFailure(f"{topic}-{partition} cannot be read: {error.str()}")
    except KafkaException as error:
        raise OperationalFailure(f"{topic} cannot be read: {reason(error)}") from error
    finally:
        consumer.close()
