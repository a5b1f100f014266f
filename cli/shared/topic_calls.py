"""Requests of commands about topics: offsets, configs, and deletion of records."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from cli.shared.failures import missing_topic, usage_error
from cli.shared.kafka_admin import ANSWER_MARGIN_S, TIMEOUT_S, Cluster, refuse_unknown_configs, result_of
from cli.shared.output import progress_bar
from cli.shared.times import parse_time
from cli.shared.topic_filters import PartitionState
from runtime.process import OperationalFailure
from wire.rules.topic_config_kinds import LONG_MAX

OFFSETS_A_REQUEST: Final = 4_000
"""Partitions whose offsets one request asks for: a request takes seconds on a busy machine, and for
each one the client asks for the topic's leaders again.
"""
OFFSETS_TIMEOUT_S: Final = 60.0
"""The time (s) in which a request for offsets must be answered."""


def partition_states(name: str, topic: Any) -> list[PartitionState]:
    """The state of each partition."""
    return [
        PartitionState(name, index, partition.leader, tuple(partition.replicas), tuple(partition.isrs))
        for index, partition in sorted(topic.partitions.items())
    ]


def offsets_before(cluster: Cluster, topic: str, before: str, partition: int | None) -> dict[int, int]:
    """The offset of each partition before which records are to go: a time, or an offset of one
    partition.
    """
    if partition is not None and partition not in partitions_of(cluster, topic):
        raise OperationalFailure(f"topic {topic} has no partition {partition}")
    if partition is not None and before.isdecimal():
        return {partition: _kept_offset(cluster, topic, partition, parse_offset("--before", before))}
    found, ends = offsets_at(cluster, topic, parse_at("--before", before)), offsets_at(cluster, topic, "latest")
    return {
        index: ends[index] if offset < 0 else offset
        for index, offset in found.items()
        if partition is None or index == partition
    }


def _kept_offset(cluster: Cluster, topic: str, partition: int, before: int) -> int:
    """The offset, if the partition's log has it. Brokers refuse an offset after the end; a dry run
    asks no broker for the deletion.
    """
    end = offsets_at(cluster, topic, "latest", partitions=[partition])[partition]
    if before > end:
        raise OperationalFailure(
            f"records of {topic}-{partition} cannot be deleted before offset {before}: accepted are offsets up to {end}, "
            "the end of the log"
        )
    return before


def delete_records_before(client: Any, topic: str, wanted: dict[int, int]) -> None:
    """Delete the records of each partition before its offset."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, index, offset) for index, offset in wanted.items()]
    for place, outcome in client.delete_records(asked, request_timeout=TIMEOUT_S).items():
        result_of(outcome, f"records of {topic}-{place.partition} cannot be deleted")


def parse_offset(option: str, text: str, *, prefix: str = "") -> int:
    """The offset after the prefix. A usage error names the option and what is accepted."""
    number = text.removeprefix(prefix)
    if not number.isdecimal() or int(number) > LONG_MAX:
        raise usage_error(
            f"{option} {text!r} is not usable: accepted is {prefix}NUMBER with a number from 0 to {LONG_MAX}"
        )
    return int(number)


def parse_at(option: str, text: str) -> str | int:
    """`earliest`, `latest`, or Unix ms. A usage error names the option and what is accepted."""
    if text in ("earliest", "latest"):
        return text
    return parse_time(option, text, besides="earliest, latest, ")


def partitions_of(cluster: Cluster, topic: str) -> dict[int, Any]:
    """The partitions of a topic by index. OperationalFailure when it is not there."""
    # All topics are requested, not this name: a request for a name may create the topic
    # (auto.create.topics.enable).
    found = cluster.topics.get(topic)
    if found is None:
        raise missing_topic(topic)
    if found.error is not None:
        raise OperationalFailure(f"topic {topic}: {found.error.name()}: {found.error.str()}")
    return dict(found.partitions)


def offsets_at(
    cluster: Cluster, topic: str, at: str | int, *, partitions: Collection[int] | None = None
) -> dict[int, int]:
    """The offset of each partition, or of those given, at a time (`parse_at`). OperationalFailure
    when the topic or a leader is away.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    named: dict[str, Callable[[], Any]] = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
    spec = named[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
    wanted = partitions_of(cluster, topic) if partitions is None else partitions
    if not wanted:
        return {}
    left, found = sorted(wanted), dict[int, int]()
    with progress_bar(len(left) if len(left) > OFFSETS_A_REQUEST else None, of_bytes=False) as advance:
        while left:
            page, left = left[:OFFSETS_A_REQUEST], left[OFFSETS_A_REQUEST:]
            asked = cluster.client.list_offsets(
                {TopicPartition(topic, index): spec for index in page}, request_timeout=OFFSETS_TIMEOUT_S
            )
            for place, outcome in asked.items():
                what = f"offsets of {topic}-{place.partition}"
                found[place.partition] = result_of(outcome, what, timeout_s=OFFSETS_TIMEOUT_S + ANSWER_MARGIN_S).offset
            advance(len(page))
    return found


def configs_of(cluster: Cluster, topic: str, *, is_set_only: bool) -> dict[str, str]:
    """The configs of a topic in force; with `is_set_only` those of its own."""
    from confluent_kafka.admin import ConfigResource, ConfigSource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = result_of(cluster.client.describe_configs([resource])[resource], f"configs of {topic}")
    return {
        name: entry.value
        for name, entry in sorted(found.items())
        if not is_set_only or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def alter_configs(cluster: Cluster, topic: str, changed: dict[str, str], unset: list[str], *, is_dry_run: bool) -> None:
    """Set and remove configs of a topic."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

    what = f"configs of {topic} cannot be changed"
    if unset:
        refuse_unknown_configs(unset, configs_of(cluster, topic, is_set_only=False), what)
    entries = [
        *(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changed.items()),
        *(ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in unset),
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    for outcome in cluster.client.incremental_alter_configs([resource], validate_only=is_dry_run).values():
        result_of(outcome, what)
