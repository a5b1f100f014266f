"""Topic configs are checked by name, type and range."""

from __future__ import annotations

import pytest

from wire.rules.topic_config_kinds import InvalidTopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS, check_overrides


def test_every_default_is_accepted() -> None:
    check_overrides({name: config.default for name, config in TOPIC_CONFIGS.items()})


@pytest.mark.parametrize(
    "overrides",
    [
        {"cleanup.policy": "compact,delete"},
        {"cleanup.policy": " compact , delete "},
        {"cleanup.policy": ""},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,1:1,"},
        {"retention.ms": "-1"},
        {"min.cleanable.dirty.ratio": "1"},
        {"preallocate": "TRUE"},
    ],
)
def test_values_within_type_and_range_are_accepted(overrides: dict[str, str]) -> None:
    check_overrides(overrides)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"retention.hours": "1"}, "Unknown topic config name: retention.hours"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "1_000"}, "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "-2"}, "Value must be at least -1"),
        ({"segment.bytes": "4294967296"}, "Not a number of type INT"),
        ({"cleanup.policy": "shred"}, "must be one of: delete, compact"),
        ({"cleanup.policy": "delete,"}, "Values must not be empty"),
        ({"cleanup.policy": "compact,,delete"}, "Values must not be empty"),
        ({"leader.replication.throttled.replicas": "*,0:1"}, "a list of replicas"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "no more than 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "at least 0"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"compression.type": "brotli"}, "must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression.gzip.level": "0"}, "must not be 0"),
        ({"compression.lz4.level": "18"}, "no more than 17"),
        ({"preallocate": "perhaps"}, "true, false"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "conflict"),
    ],
)
def test_anything_else_is_refused_by_name(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidTopicConfig, match=problem):
        check_overrides(overrides)


@pytest.mark.parametrize(("name", "text"), [("retention.ms", "soon"), ("cleanup.policy", "shred"), ("none.such", "1")])
def test_a_refusal_names_the_key_the_value_and_what_is_accepted(name: str, text: str) -> None:
    with pytest.raises(InvalidTopicConfig) as refusal:
        check_overrides({name: text})
    assert (refusal.value.key, refusal.value.value) == (name, text)
    assert refusal.value.accepted
