"""The topic configurations: names, types, defaults, broker-wide counterparts, and the checked values as `LogConfig`. Pure.

A topic's value comes from its own override, else from the broker's property, else from the default; `resolve` also says
which of the three it was, for DescribeConfigs. Names and defaults are those of Apache Kafka's current topic configs. Left
out on purpose: remote storage, and compression by the broker (`compression.type` may only be `producer`, because batches
are never reopened on the way in).

Callers: the log (`LogConfig`), CreateTopics and AlterConfigs (`validate_topic_configs`), DescribeConfigs (`TOPIC_CONFIGS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


class ConfigKind(StrEnum):
    """Types of values, by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


class ConfigSource(StrEnum):
    """Where a value comes from."""

    TOPIC = "topic"
    BROKER = "broker"
    DEFAULT = "default"


class InvalidTopicConfig(ValueError):
    """A value that is not accepted: names the key, the value and what would be."""

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"{key}={value}: accepted is {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


class BrokerProperty(NamedTuple):
    """A broker-wide counterpart and the factor that turns its unit into the topic's."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic configuration."""

    name: str
    kind: ConfigKind
    default: str
    documentation: str
    broker_properties: tuple[BrokerProperty, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> bool | int | float | str:
        """The checked value of `text`; raises InvalidTopicConfig."""
        stripped = text.strip()
        match self.kind:
            case ConfigKind.BOOLEAN:
                return self._parse_boolean(stripped)
            case ConfigKind.INT | ConfigKind.LONG | ConfigKind.DOUBLE:
                return self._parse_number(stripped)
            case ConfigKind.STRING:
                if self.choices and stripped not in self.choices:
                    raise self._refusal(text)
                return stripped
            case ConfigKind.LIST:
                parts = [part.strip() for part in stripped.split(",") if part.strip()]
                if self.choices and (not parts or not set(parts) <= set(self.choices)):
                    raise self._refusal(text)
                return ",".join(parts)

    def _parse_boolean(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise self._refusal(text)
        return text.lower() == "true"

    def _parse_number(self, text: str) -> int | float:
        try:
            number: int | float = float(text) if self.kind is ConfigKind.DOUBLE else int(text)
        except ValueError:
            raise self._refusal(text) from None
        largest = self.maximum if self.maximum is not None else INT_MAX if self.kind is ConfigKind.INT else LONG_MAX
        # not (a <= b) also refuses NaN
        if not (number <= largest) or (self.minimum is not None and not (number >= self.minimum)):
            raise self._refusal(text)
        return number

    def _refusal(self, value: str) -> InvalidTopicConfig:
        return InvalidTopicConfig(self.name, value, self.accepted)

    @property
    def accepted(self) -> str:
        """What values are accepted, in words."""
        if self.kind is ConfigKind.BOOLEAN:
            return "true or false"
        if self.choices:
            joined = ", ".join(self.choices)
            return f"a comma-separated list of {joined}" if self.kind is ConfigKind.LIST else f"one of {joined}"
        if self.kind in (ConfigKind.STRING, ConfigKind.LIST):
            return "any text"
        word = "a number" if self.kind is ConfigKind.DOUBLE else "a whole number"
        bounds = f", at least {self.minimum:g}" if self.minimum is not None else ""
        return f"{word}{bounds}" + (f", at most {self.maximum:g}" if self.maximum is not None else "")


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
) -> TopicConfig:
    return TopicConfig(
        name=name,
        kind=kind,
        default=str(default),
        documentation=documentation,
        broker_properties=broker_properties,
        minimum=minimum,
        maximum=maximum,
    )


_INT, _LONG = ConfigKind.INT, ConfigKind.LONG
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

_DEFINITIONS: Final = (
    TopicConfig(
        name="cleanup.policy",
        kind=ConfigKind.LIST,
        default="delete",
        choices=("delete", "compact"),
        broker_properties=_property("log.cleanup.policy"),
        documentation="What happens to old segments: deleted by time and size, compacted by key, or both.",
    ),
    TopicConfig(
        name="compression.type",
        kind=ConfigKind.STRING,
        default="producer",
        choices=("producer",),
        broker_properties=_property("compression.type"),
        documentation="How batches are compressed on disk: always as the producer sent them.",
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
        documentation="Accepted for compatibility; segments grow as they are written.",
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


class ResolvedConfig(NamedTuple):
    """A value in force and where it comes from; `broker_property` names the property when it is the broker's."""

    text: str
    source: ConfigSource
    broker_property: str | None = None


def resolve(
    definition: TopicConfig, broker_properties: Mapping[str, str], overrides: Mapping[str, str]
) -> ResolvedConfig:
    """The value in force for one configuration, as text in the topic's unit."""
    if definition.name in overrides:
        return ResolvedConfig(overrides[definition.name], ConfigSource.TOPIC)
    for name, factor in definition.broker_properties:
        if name in broker_properties:
            text = broker_properties[name]
            if factor != 1:
                text = str(_scaled(name, text, factor))
            return ResolvedConfig(text, ConfigSource.BROKER, name)
    return ResolvedConfig(definition.default, ConfigSource.DEFAULT)


def _scaled(name: str, text: str, factor: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise InvalidTopicConfig(name, text, "a whole number") from None
    return number if number < 0 else number * factor


def validate_topic_configs(overrides: Mapping[str, str]) -> None:
    """Refuse unknown names and values out of range; raises InvalidTopicConfig."""
    for name, text in overrides.items():
        definition = TOPIC_CONFIGS.get(name)
        if definition is None:
            raise InvalidTopicConfig(name, text, f"one of the names {', '.join(TOPIC_CONFIGS)}")
        definition.parse(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configuration of one partition's log, checked. Field names are the topic configs' with the units last."""

    is_compacted: bool = False
    is_deleted: bool = True
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    compaction_lag_ms_max: int = LONG_MAX
    compaction_lag_ms_min: int = 0
    message_bytes_max: int = 1_048_588
    timestamp_after_ms_max: int = _HOUR_MS
    timestamp_before_ms_max: int = LONG_MAX
    is_log_append_time: bool = False
    cleanable_dirty_ratio_min: float = 0.5
    insync_replicas_min: int = 1
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    is_unclean_election_enabled: bool = False

    @classmethod
    def from_topic_configs(cls, broker_properties: Mapping[str, str], overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic with `overrides` on a broker with these properties; raises InvalidTopicConfig."""
        validate_topic_configs(overrides)
        values: dict[str, bool | int | float | str] = {}
        for name, definition in TOPIC_CONFIGS.items():
            resolved = resolve(definition, broker_properties, overrides)
            try:
                values[name] = definition.parse(resolved.text)
            except InvalidTopicConfig as refusal:
                raise InvalidTopicConfig(resolved.broker_property or name, resolved.text, refusal.accepted) from None
        policies = str(values["cleanup.policy"]).split(",")
        numbers = {field: int(values[name]) for field, name in _NUMBER_FIELDS.items()}
        return cls(
            is_compacted="compact" in policies,
            is_deleted="delete" in policies,
            is_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            cleanable_dirty_ratio_min=float(values["min.cleanable.dirty.ratio"]),
            is_unclean_election_enabled=bool(values["unclean.leader.election.enable"]),
            **numbers,
        )


_NUMBER_FIELDS: Final = {
    "delete_retention_ms": "delete.retention.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "index_interval_bytes": "index.interval.bytes",
    "compaction_lag_ms_max": "max.compaction.lag.ms",
    "compaction_lag_ms_min": "min.compaction.lag.ms",
    "message_bytes_max": "max.message.bytes",
    "timestamp_after_ms_max": "message.timestamp.after.max.ms",
    "timestamp_before_ms_max": "message.timestamp.before.max.ms",
    "insync_replicas_min": "min.insync.replicas",
    "retention_bytes": "retention.bytes",
    "retention_ms": "retention.ms",
    "segment_bytes": "segment.bytes",
    "segment_index_bytes": "segment.index.bytes",
    "segment_jitter_ms": "segment.jitter.ms",
    "segment_ms": "segment.ms",
}
