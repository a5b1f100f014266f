"""The topic configs that a site accepts: name, type, default, accepted range, and the broker
properties behind each. Pure.

Names, defaults and ranges are Apache Kafka's, but for what begins with `antipode.`. The controller
checks with them what a client wants to set, a broker works out what is in force
(`broker/settings/core/topic_configs.py`) and describes it. Left out on purpose: remote storage;
what is left out is refused by name, so that no operator believes it in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wire.rules.topic_config_kinds import (
    LONG_MAX,
    REPLICAS,
    REPLICAS_ACCEPTED,
    BrokerProperty,
    ConfigKind,
    InvalidTopicConfig,
    TopicConfig,
)

COPY_BEGINS: Final = "antipode.copy.begins"
"""Written by mirrors (`mirror/flow/core/beginnings.py`)."""


def _property(name: str, factor: int = 1) -> tuple[BrokerProperty, ...]:
    return (BrokerProperty(name, factor),)


def _number(
    name: str,
    kind: ConfigKind,
    default: float,
    documentation: str,
    *broker_properties: BrokerProperty,
    minimum: float | None = 0,
    maximum: float | None = None,
    excluded: tuple[float, ...] = (),
) -> TopicConfig:
    return TopicConfig(
        name=name,
        kind=kind,
        default=str(default),
        documentation=documentation,
        broker_properties=broker_properties,
        minimum=minimum,
        maximum=maximum,
        excluded=excluded,
    )


_INT, _LONG = ConfigKind.INT, ConfigKind.LONG
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

_DEFINITIONS: Final = (
    TopicConfig(
        name=COPY_BEGINS,
        kind=ConfigKind.LIST,
        default="",
        pattern=re.compile(r"\d+:(\d+|-1)"),
        pattern_accepted="a list of offsets as partition:offset,partition:offset, -1 for one that is not known",
        documentation="Set by mirrors: where copies of partitions begin whose source had deleted its first records before.",
    ),
    TopicConfig(
        name="cleanup.policy",
        kind=ConfigKind.LIST,
        default="delete",
        choices=("delete", "compact"),
        broker_properties=_property("log.cleanup.policy"),
        documentation="The handling of old segments: deleted by time and size, compacted by key, both, or neither if the list is empty.",
    ),
    TopicConfig(
        name="compression.type",
        kind=ConfigKind.STRING,
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_properties=_property("compression.type"),
        documentation="The codec of batches on disk. producer keeps what the producer chose; with any other value the leader compresses "
        "batches of another codec anew.",
    ),
    _number(
        "compression.gzip.level",
        _INT,
        -1,
        "The level at which the broker compresses with gzip: 1 to 9, -1 for the codec's default.",
        BrokerProperty("compression.gzip.level"),
        minimum=-1,
        maximum=9,
        excluded=(0,),
    ),
    _number(
        "compression.lz4.level",
        _INT,
        9,
        "The level at which the broker compresses with lz4.",
        BrokerProperty("compression.lz4.level"),
        minimum=1,
        maximum=17,
    ),
    _number(
        "compression.zstd.level",
        _INT,
        3,
        "The level at which the broker compresses with zstd.",
        BrokerProperty("compression.zstd.level"),
        minimum=-131072,
        maximum=22,
    ),
    _number(
        "delete.retention.ms",
        _LONG,
        _DAY_MS,
        "How long a compacted topic keeps tombstones, so that a reader from the start sees the deletion.",
        BrokerProperty("log.cleaner.delete.retention.ms"),
    ),
    _number(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        "How long files of deleted segments stay under another name before they are removed.",
        BrokerProperty("log.segment.delete.delay.ms"),
    ),
    _number(
        "flush.messages",
        _LONG,
        LONG_MAX,
        "Records after which the log is forced to disk; 1 means before each append is acknowledged.",
        BrokerProperty("log.flush.interval.messages"),
        minimum=1,
    ),
    _number(
        "flush.ms",
        _LONG,
        LONG_MAX,
        "Time after which the log is forced to disk.",
        BrokerProperty("log.flush.interval.ms"),
        BrokerProperty("log.flush.scheduler.interval.ms"),
    ),
    TopicConfig(
        name="follower.replication.throttled.replicas",
        kind=ConfigKind.LIST,
        default="",
        pattern=REPLICAS,
        pattern_accepted=REPLICAS_ACCEPTED,
        documentation="Replicas (partition:broker, or *) whose replication is throttled on the follower's side.",
    ),
    _number(
        "index.interval.bytes",
        _INT,
        4096,
        "Bytes of records between two index entries.",
        BrokerProperty("log.index.interval.bytes"),
    ),
    TopicConfig(
        name="leader.replication.throttled.replicas",
        kind=ConfigKind.LIST,
        default="",
        pattern=REPLICAS,
        pattern_accepted=REPLICAS_ACCEPTED,
        documentation="Replicas (partition:broker, or *) whose replication is throttled on the leader's side.",
    ),
    _number(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Longest time a record of a compacted topic may stay uncompacted.",
        BrokerProperty("log.cleaner.max.compaction.lag.ms"),
        minimum=1,
    ),
    _number(
        "max.message.bytes",
        _INT,
        1_048_588,
        "Largest record batch, compressed, header included.",
        BrokerProperty("message.max.bytes"),
    ),
    _number(
        "message.timestamp.after.max.ms",
        _LONG,
        _HOUR_MS,
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        BrokerProperty("log.message.timestamp.after.max.ms"),
    ),
    _number(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far a producer's timestamp may lie behind the broker's clock.",
        BrokerProperty("log.message.timestamp.before.max.ms"),
    ),
    TopicConfig(
        name="message.timestamp.type",
        kind=ConfigKind.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker_properties=_property("log.message.timestamp.type"),
        documentation="Whether timestamps are the producer's or the broker's at the time of the append.",
    ),
    _number(
        "min.cleanable.dirty.ratio",
        ConfigKind.DOUBLE,
        0.5,
        "Share of uncompacted bytes from which a compacted log is cleaned.",
        BrokerProperty("log.cleaner.min.cleanable.ratio"),
        maximum=1,
    ),
    _number(
        "min.compaction.lag.ms",
        _LONG,
        0,
        "Time a record of a compacted topic stays uncompacted at least.",
        BrokerProperty("log.cleaner.min.compaction.lag.ms"),
    ),
    _number(
        "min.insync.replicas",
        _INT,
        1,
        "Replicas that must be in sync for a write with acks=all.",
        BrokerProperty("min.insync.replicas"),
        minimum=1,
    ),
    TopicConfig(
        name="preallocate",
        kind=ConfigKind.BOOLEAN,
        default="false",
        broker_properties=_property("log.preallocate"),
        documentation="Whether the file of a new segment has its full length, segment.bytes, from the beginning.",
    ),
    _number(
        "retention.bytes",
        _LONG,
        -1,
        "Size beyond which old segments of a partition are deleted; -1 for no limit.",
        BrokerProperty("log.retention.bytes"),
        minimum=None,
    ),
    _number(
        "retention.ms",
        _LONG,
        7 * _DAY_MS,
        "Age beyond which old segments are deleted; -1 for no limit.",
        BrokerProperty("log.retention.ms"),
        BrokerProperty("log.retention.minutes", 60_000),
        BrokerProperty("log.retention.hours", _HOUR_MS),
        minimum=-1,
    ),
    _number(
        "segment.bytes",
        _INT,
        1_073_741_824,
        "Size at which a segment is full.",
        BrokerProperty("log.segment.bytes"),
        minimum=14,
    ),
    _number(
        "segment.index.bytes",
        _INT,
        10_485_760,
        "Size at which an index is full, and with it the segment.",
        BrokerProperty("log.index.size.max.bytes"),
        minimum=24,
    ),
    _number(
        "segment.jitter.ms",
        _LONG,
        0,
        "Random time taken off segment.ms, so that not all partitions roll at once.",
        BrokerProperty("log.roll.jitter.ms"),
        BrokerProperty("log.roll.jitter.hours", _HOUR_MS),
    ),
    _number(
        "segment.ms",
        _LONG,
        7 * _DAY_MS,
        "Time after which a new segment begins even if the old one is not full.",
        BrokerProperty("log.roll.ms"),
        BrokerProperty("log.roll.hours", _HOUR_MS),
        minimum=1,
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        kind=ConfigKind.BOOLEAN,
        default="false",
        broker_properties=_property("unclean.leader.election.enable"),
        documentation="Whether a replica that is not in sync may become leader, losing records.",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {definition.name: definition for definition in _DEFINITIONS}
"""All topic configurations by name."""


def check_overrides(overrides: Mapping[str, str]) -> None:
    """InvalidTopicConfig for the first override, by name, that is unknown or not accepted, or that
    contradicts another.
    """
    for name in sorted(overrides):
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            names = f"one of the names {', '.join(TOPIC_CONFIGS)}"
            raise InvalidTopicConfig(
                f"Unknown topic config name: {name}", key=name, value=overrides[name], accepted=names
            )
        config.parse(overrides[name])
    shortest = _lag(overrides, "min.compaction.lag.ms")
    longest = _lag(overrides, "max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidTopicConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})",
            key="min.compaction.lag.ms",
            value=str(shortest),
            accepted=f"at most max.compaction.lag.ms, which is {longest}",
        )


def _lag(overrides: Mapping[str, str], name: str) -> int:
    return int(overrides.get(name, TOPIC_CONFIGS[name].default))
