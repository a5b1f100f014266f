"""The configs in force for a topic on a broker: its own override, the broker's property, or the
default; and the same as `LogConfig`. Pure.

`resolve` also says which of the three it was. The names, types and ranges are the site's
(`wire/rules/topic_configs.py`).

Callers: replicas (`LogConfig`), DescribeConfigs and CreateTopics (`resolve`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from wire.batches.record_batch import Compression
from wire.rules.topic_config_kinds import LONG_MAX, NO_REPLICAS, InvalidTopicConfig, TopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS, check_overrides

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's numbers; the lower wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class ConfigLayer(NamedTuple):
    """Broker properties from one source."""

    source: ConfigSource
    properties: Mapping[str, str]


class ResolvedConfig(NamedTuple):
    """A value and where it comes from; `broker_property` names the property when it is a
    broker's.
    """

    text: str
    source: ConfigSource
    broker_property: str | None = None


def synonyms(
    definition: TopicConfig, layers: Sequence[ConfigLayer], overrides: Mapping[str, str]
) -> list[ResolvedConfig]:
    """All values that are set for one configuration, the value in force first, the default last, in
    the topic's unit.

    `layers` are in the order of their sources. Milliseconds in any of them beat hours in another,
    as in Kafka.
    """
    found = []
    if definition.name in overrides:
        found.append(ResolvedConfig(overrides[definition.name], ConfigSource.TOPIC))
    for name, factor in definition.broker_properties:
        for source, properties in layers:
            if name in properties:
                text = properties[name]
                found.append(ResolvedConfig(text if factor == 1 else str(_scaled(name, text, factor)), source, name))
    found.append(ResolvedConfig(definition.default, ConfigSource.DEFAULT))
    return found


def resolve(definition: TopicConfig, layers: Sequence[ConfigLayer], overrides: Mapping[str, str]) -> ResolvedConfig:
    """The value in force for one configuration, as text in the topic's unit."""
    return synonyms(definition, layers, overrides)[0]


def _scaled(name: str, text: str, factor: int) -> int:
    try:
        number = int(text)
    except ValueError:
        message = f"Invalid value {text} for configuration {name}: Not a number of type LONG"
        raise InvalidTopicConfig(message, key=name, value=text, accepted="a whole number") from None
    return number if number < 0 else number * factor


class LogConfig(Struct, frozen=True, kw_only=True):
    """The configuration of one partition's log, checked. Field names are the topic configs' with
    the units last.
    """

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
    compression: Compression | None = None
    """The codec of the broker's compression; None keeps the producer's codec."""
    compression_level: int | None = None
    is_log_append_time: bool = False
    cleanable_dirty_ratio_min: float = 0.5
    insync_replicas_min: int = 1
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    is_preallocated: bool = False
    throttled_leaders: frozenset[str] = frozenset()
    throttled_followers: frozenset[str] = frozenset()
    truncated_bytes_kept_max: int = 0
    """How many bytes the file of batches that the log loses may have; for the opening of a log."""

    @classmethod
    def from_topic_configs(cls, broker_properties: Mapping[str, str], overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic with `overrides` on a broker with these properties; raises
        InvalidTopicConfig.
        """
        check_overrides(overrides)
        layers = [ConfigLayer(ConfigSource.STATIC, broker_properties)]
        values: dict[str, bool | int | float | str] = {}
        for name, definition in TOPIC_CONFIGS.items():
            resolved = resolve(definition, layers, overrides)
            values[name] = definition.parse_as(resolved.broker_property or name, resolved.text)
        policies = str(values["cleanup.policy"]).split(",")
        codec = str(values["compression.type"])
        level_name = f"compression.{codec}.level"
        numbers = {field: int(values[name]) for field, name in _NUMBER_FIELDS.items()}
        return cls(
            is_compacted="compact" in policies,
            is_deleted="delete" in policies,
            compression=_CODECS.get(codec),
            compression_level=int(values[level_name]) if level_name in values else None,
            is_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            cleanable_dirty_ratio_min=float(values["min.cleanable.dirty.ratio"]),
            is_preallocated=bool(values["preallocate"]),
            throttled_leaders=_replicas(str(values["leader.replication.throttled.replicas"])),
            throttled_followers=_replicas(str(values["follower.replication.throttled.replicas"])),
            **numbers,
        )


_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""Values of compression.type but `producer`."""


def _replicas(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - {"", NO_REPLICAS}


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
