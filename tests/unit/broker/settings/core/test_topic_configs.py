"""Topic configs: the source of each value."""

import pytest

from broker.settings.core.topic_configs import ConfigLayer, ConfigSource, LogConfig, resolve, synonyms
from wire.rules.topic_config_kinds import InvalidTopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS

STATIC = [ConfigLayer(ConfigSource.STATIC, {"log.retention.hours": "2"})]


def test_an_override_beats_the_broker_and_the_broker_beats_the_default():
    definition = TOPIC_CONFIGS["retention.ms"]
    assert resolve(definition, [], {}).source is ConfigSource.DEFAULT
    broker = resolve(definition, STATIC, {})
    assert (broker.text, broker.source, broker.broker_property) == (
        "7200000",
        ConfigSource.STATIC,
        "log.retention.hours",
    )
    assert resolve(definition, STATIC, {"retention.ms": "5"}).text == "5"


def test_milliseconds_beat_minutes_and_minutes_beat_hours():
    properties = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert LogConfig.from_topic_configs(properties, {}).retention_ms == 180_000
    assert LogConfig.from_topic_configs({**properties, "log.retention.ms": "9"}, {}).retention_ms == 9
    assert LogConfig.from_topic_configs({"log.retention.hours": "-1"}, {}).retention_ms == -1


def test_a_bad_broker_property_is_named_by_its_own_name():
    with pytest.raises(InvalidTopicConfig, match=r"log\.segment\.bytes"):
        LogConfig.from_topic_configs({"log.segment.bytes": "big"}, {})


def test_both_cleanup_policies_can_hold():
    config = LogConfig.from_topic_configs({}, {"cleanup.policy": "compact, delete"})
    assert config.is_compacted
    assert config.is_deleted


def test_defaults_of_the_log_are_those_of_the_list():
    assert LogConfig.from_topic_configs({}, {}) == LogConfig()


def test_synonyms_are_everything_that_is_set_with_the_value_in_force_first():
    layers = [
        ConfigLayer(ConfigSource.DYNAMIC_BROKER, {}),
        ConfigLayer(ConfigSource.DYNAMIC_DEFAULT, {"log.retention.ms": "7"}),
        *STATIC,
    ]
    found = synonyms(TOPIC_CONFIGS["retention.ms"], layers, {"retention.ms": "5"})
    assert [(each.text, each.source) for each in found] == [
        ("5", ConfigSource.TOPIC),
        ("7", ConfigSource.DYNAMIC_DEFAULT),
        ("7200000", ConfigSource.STATIC),
        ("604800000", ConfigSource.DEFAULT),
    ]


def test_without_a_policy_nothing_old_is_cleaned_up() -> None:
    config = LogConfig.from_topic_configs({}, {"cleanup.policy": ""})
    assert (config.is_compacted, config.is_deleted) == (False, False)
