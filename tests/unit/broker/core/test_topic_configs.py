"""Topic configs: where a value comes from."""

import pytest

from broker.core.topic_configs import ConfigSource, LogConfig, resolve
from wire.topic_configs import TOPIC_CONFIGS, InvalidTopicConfig


def test_an_override_beats_the_broker_and_the_broker_beats_the_default():
    definition = TOPIC_CONFIGS["retention.ms"]
    assert resolve(definition, {}, {}).source is ConfigSource.DEFAULT
    broker = resolve(definition, {"log.retention.hours": "2"}, {})
    assert (broker.text, broker.source, broker.broker_property) == (
        "7200000",
        ConfigSource.BROKER,
        "log.retention.hours",
    )
    assert resolve(definition, {"log.retention.hours": "2"}, {"retention.ms": "5"}).text == "5"


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
