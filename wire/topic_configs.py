"""The topic configs that a site knows: name, type, default and accepted range.

Names, defaults and ranges are Apache Kafka's. The controller checks with them what a client wants to set; brokers describe and
apply them. Pure data and pure checks. Configs of features that Antipode does not have (tiered storage) are not
in the table and are refused by name, so that nobody believes them to be in force.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class ConfigType(enum.Enum):
    """Type as DescribeConfigs names it; `code` is the number on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7

    @property
    def code(self) -> int:
        """Number in DescribeConfigs responses."""
        return self.value


class InvalidTopicConfig(ValueError):
    """A config is unknown or its value is not accepted; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One known config. `minimum` and `maximum` bound numbers; `choices` are the accepted words."""

    name: str
    type: ConfigType
    default: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    broker_key: str = ""
    """Key of the site-wide default in a broker's configuration, empty when there is none."""

    def check(self, value: str) -> None:
        """InvalidTopicConfig unless the value is accepted."""
        match self.type:
            case ConfigType.BOOLEAN:
                self._check_word(value.lower(), ("true", "false"))
            case ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
                self._check_number(value)
            case ConfigType.LIST:
                for item in filter(None, (part.strip() for part in value.split(","))):
                    self._check_word(item, self.choices)
            case ConfigType.STRING:
                self._check_word(value, self.choices)

    def _refuse(self, value: str, problem: str) -> InvalidTopicConfig:
        return InvalidTopicConfig(f"Invalid value {value} for configuration {self.name}: {problem}")

    def _check_word(self, value: str, accepted: tuple[str, ...]) -> None:
        if accepted and value not in accepted:
            raise self._refuse(value, f"String must be one of: {', '.join(accepted)}")

    def _check_number(self, value: str) -> None:
        try:
            number = float(value) if self.type is ConfigType.DOUBLE else int(value)
        except ValueError as error:
            raise self._refuse(value, f"Not a number of type {self.type.name}") from error
        limit = INT_MAX if self.type is ConfigType.INT else LONG_MAX
        if self.type is not ConfigType.DOUBLE and not -limit - 1 <= number <= limit:
            raise self._refuse(value, f"Not a number of type {self.type.name}")
        if self.minimum is not None and not number >= self.minimum:
            raise self._refuse(value, f"Value must be at least {self.minimum:g}")
        if self.maximum is not None and not number <= self.maximum:
            raise self._refuse(value, f"Value must be no more than {self.maximum:g}")


def _number(
    name: str, default: float, minimum: float | None, broker_key: str = "", *, type_: ConfigType = ConfigType.LONG
) -> TopicConfig:
    return TopicConfig(name=name, type=type_, default=str(default), minimum=minimum, broker_key=broker_key)


def _small(name: str, default: int, minimum: int, broker_key: str = "") -> TopicConfig:
    return _number(name, default, minimum, broker_key, type_=ConfigType.INT)


def _flag(name: str, default: str, broker_key: str = "") -> TopicConfig:
    return TopicConfig(name=name, type=ConfigType.BOOLEAN, default=default, broker_key=broker_key)


_TABLE = (
    TopicConfig(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default="delete",
        choices=("compact", "delete"),
        broker_key="log.cleanup.policy",
    ),
    TopicConfig(
        name="compression.type",
        type=ConfigType.STRING,
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_key="compression.type",
    ),
    _number("delete.retention.ms", 86_400_000, 0, "log.cleaner.delete.retention.ms"),
    _number("file.delete.delay.ms", 60_000, 0, "log.segment.delete.delay.ms"),
    _number("flush.messages", LONG_MAX, 1, "log.flush.interval.messages"),
    _number("flush.ms", LONG_MAX, 0, "log.flush.interval.ms"),
    _small("index.interval.bytes", 4096, 0, "log.index.interval.bytes"),
    _number("max.compaction.lag.ms", LONG_MAX, 1, "log.cleaner.max.compaction.lag.ms"),
    _small("max.message.bytes", 1_048_588, 0, "message.max.bytes"),
    _flag("message.downconversion.enable", "true", "log.message.downconversion.enable"),
    _number("message.timestamp.after.max.ms", 3_600_000, 0, "log.message.timestamp.after.max.ms"),
    _number("message.timestamp.before.max.ms", LONG_MAX, 0, "log.message.timestamp.before.max.ms"),
    _number("message.timestamp.difference.max.ms", LONG_MAX, 0, "log.message.timestamp.difference.max.ms"),
    TopicConfig(
        name="message.timestamp.type",
        type=ConfigType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
    ),
    TopicConfig(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.DOUBLE,
        default="0.5",
        minimum=0,
        maximum=1,
        broker_key="log.cleaner.min.cleanable.ratio",
    ),
    _number("min.compaction.lag.ms", 0, 0, "log.cleaner.min.compaction.lag.ms"),
    _small("min.insync.replicas", 1, 1, "min.insync.replicas"),
    _flag("preallocate", "false", "log.preallocate"),
    _number("retention.bytes", -1, None, "log.retention.bytes"),
    _number("retention.ms", 604_800_000, -1, "log.retention.ms"),
    _small("segment.bytes", 1_073_741_824, 14, "log.segment.bytes"),
    _small("segment.index.bytes", 10_485_760, 4, "log.index.size.max.bytes"),
    _number("segment.jitter.ms", 0, 0, "log.roll.jitter.ms"),
    _number("segment.ms", 604_800_000, 1, "log.roll.ms"),
    _flag("unclean.leader.election.enable", "false", "unclean.leader.election.enable"),
)

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {config.name: config for config in _TABLE}
"""Every known topic config by name."""


def check_overrides(overrides: Mapping[str, str]) -> None:
    """InvalidTopicConfig for the first override, by name, that is unknown or not accepted, or that contradicts another."""
    for name in sorted(overrides):
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise InvalidTopicConfig(f"Unknown topic config name: {name}")
        config.check(overrides[name])
    shortest = _lag(overrides, "min.compaction.lag.ms")
    longest = _lag(overrides, "max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidTopicConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def _lag(overrides: Mapping[str, str], name: str) -> int:
    return int(overrides.get(name, TOPIC_CONFIGS[name].default))
