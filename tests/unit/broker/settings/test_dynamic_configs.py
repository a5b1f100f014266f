"""The values in force come from the file, from changes for all brokers and from changes for this
broker.
"""

import pytest

from broker.settings.core.topic_configs import ConfigSource, resolve
from broker.settings.dynamic_configs import DynamicConfigs
from broker.settings.loading import load_broker_settings
from runtime.configuration import ConfigurationError
from wire.rules.topic_configs import TOPIC_CONFIGS

FILE = {
    "node.id": "1",
    "listeners": "CLIENT://127.0.0.1:0",
    "log.dirs": "data",
    "zookeeper.connect": "none:1",
    "max.connections": "50",
    "log.retention.hours": "3",
}


@pytest.fixture
def configs():
    return DynamicConfigs(load_broker_settings(FILE))


def test_one_broker_beats_all_brokers_and_both_beat_the_file(configs):
    configs.take({"max.connections": "40"}, {})
    assert configs.current.connections_max == 40
    configs.take({"max.connections": "40"}, {"max.connections": "30"})
    assert configs.current.connections_max == 30
    configs.take({}, {})
    assert configs.current is configs.static
    assert configs.current.connections_max == 50


def test_the_counterpart_of_a_topic_config_is_in_force_with_its_source(configs):
    configs.take({"log.retention.ms": "9"}, {})
    resolved = resolve(TOPIC_CONFIGS["retention.ms"], configs.layers, {})
    assert (resolved.text, resolved.source) == ("9", ConfigSource.DYNAMIC_DEFAULT)
    assert configs.properties["log.retention.ms"] == "9"


def test_listeners_hear_only_of_changes(configs):
    received = []
    configs.on_change(received.append)
    configs.take({}, {})
    configs.take({"log.retention.ms": "9"}, {})
    configs.take({"log.retention.ms": "9"}, {})
    assert [settings.properties["log.retention.ms"] for settings in received] == ["9"]


def test_a_change_that_a_listener_applied_in_part_is_delivered_again(configs):
    received, moods = [], iter([True])

    def moody(settings):
        for _ in moods:
            raise ValueError("a defect")
        received.append(settings.properties["log.retention.ms"])

    configs.on_change(moody)
    with pytest.raises(ValueError, match="a defect"):
        configs.take({"log.retention.ms": "9"}, {})
    configs.take({"log.retention.ms": "9"}, {})
    assert received == ["9"]


def test_stored_values_that_are_not_usable_are_left_out_alone(configs):
    configs.take({"max.connections": "none", "max.connections.per.ip": "7", "log.dirs": "else", "custom": "x"}, {})
    assert (configs.current.connections_max, configs.current.connections_per_address_max) == (50, 7)
    assert configs.for_all == {"max.connections.per.ip": "7"}
    assert configs.current.log_dirs == ("data",)


def test_a_check_says_which_value_cannot_be_taken(configs):
    with pytest.raises(ConfigurationError, match=r"max\.connections\.per\.ip\.overrides"):
        configs.check({"max.connections.per.ip.overrides": "localhost"}, {})
    configs.check({"max.connections.per.ip.overrides": "localhost:5"}, {})
