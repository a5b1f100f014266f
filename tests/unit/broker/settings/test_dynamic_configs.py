"""The values in force come from the file, from changes for all brokers and from changes for this
broker.
"""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from broker.settings.core.broker_configs import Operation, PropertyChange, changed
from broker.settings.core.topic_configs import ConfigSource, resolve
from broker.settings.dynamic_configs import DynamicConfigs
from broker.settings.loading import load_broker_settings
from runtime.configuration import ConfigurationError
from tests.support.security.identities import Identities
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


def test_stored_values_that_are_usable_only_together_are_in_force(tmp_path):
    identities = Identities(tmp_path)
    authority = x509.load_pem_x509_certificate(identities.trusted.read_bytes())
    store = tmp_path / "trusted.p12"
    store.write_bytes(serialize_key_and_certificates(None, None, None, [authority], NoEncryption()))
    file = {
        **FILE,
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(identities.issue("broker")),
        "ssl.truststore.location": str(identities.trusted),
        "ssl.truststore.type": "PEM",
    }
    configs = DynamicConfigs(load_broker_settings(file))
    wanted = {"ssl.truststore.location": str(store), "ssl.truststore.type": "PKCS12"}
    configs.check({}, wanted)
    configs.take({}, wanted)
    assert configs.for_this == wanted


@pytest.mark.parametrize("name", ["log.dirs", "ssl.keystore.password"])
def test_what_another_tool_stored_and_no_broker_heeds_can_be_removed(name):
    stored = {name: "x", "max.connections": "7"}
    assert changed(stored, [PropertyChange(name, Operation.DELETE, None)], {}) == {"max.connections": "7"}
