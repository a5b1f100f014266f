"""The topic configs that a site accepts: name, type, default and accepted range.

Names, defaults and ranges are Apache Kafka's. The controller checks with them what a client wants to set; what a broker does
with each is the broker's own table, and a test holds the two together. Pure data and pure checks. Configs of features that
Antipode does not have (tiered storage, compression by the broker) are refused by name, so that nobody believes them in force.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class ConfigType(enum.Enum):
    """Type of a value, by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


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


def _long(name: str, default: int, *, minimum: int | None = 0) -> TopicConfig:
    return TopicConfig(name=name, type=ConfigType.LONG, default=str(default), minimum=minimum)


def _int(name: str, default: int, *, minimum: int = 0) -> TopicConfig:
    return TopicConfig(name=name, type=ConfigType.INT, default=str(default), minimum=minimum)


def _word(name: str, *choices: str, type_: ConfigType = ConfigType.STRING) -> TopicConfig:
    """The first choice is the default."""
    return TopicConfig(name=name, type=type_, default=choices[0] if choices else "", choices=choices)


def _flag(name: str) -> TopicConfig:
    return TopicConfig(name=name, type=ConfigType.BOOLEAN, default="false")


_TABLE = (
    _word("cleanup.policy", "delete", "compact", type_=ConfigType.LIST),
    _word("compression.type", "producer"),
    _long("delete.retention.ms", 86_400_000),
    _long("file.delete.delay.ms", 60_000),
    _long("flush.messages", LONG_MAX, minimum=1),
    _long("flush.ms", LONG_MAX),
    _word("follower.replication.throttled.replicas", type_=ConfigType.LIST),
    _int("index.interval.bytes", 4096),
    _word("leader.replication.throttled.replicas", type_=ConfigType.LIST),
    _long("max.compaction.lag.ms", LONG_MAX, minimum=1),
    _int("max.message.bytes", 1_048_588),
    _long("message.timestamp.after.max.ms", 3_600_000),
    _long("message.timestamp.before.max.ms", LONG_MAX),
    _word("message.timestamp.type", "CreateTime", "LogAppendTime"),
    TopicConfig(name="min.cleanable.dirty.ratio", type=ConfigType.DOUBLE, default="0.5", minimum=0, maximum=1),
    _long("min.compaction.lag.ms", 0),
    _int("min.insync.replicas", 1, minimum=1),
    _flag("preallocate"),
    _long("retention.bytes", -1, minimum=None),
    _long("retention.ms", 604_800_000, minimum=-1),
    _int("segment.bytes", 1_073_741_824, minimum=14),
    _int("segment.index.bytes", 10_485_760, minimum=24),
    _long("segment.jitter.ms", 0),
    _long("segment.ms", 604_800_000, minimum=1),
    _flag("unclean.leader.election.enable"),
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
