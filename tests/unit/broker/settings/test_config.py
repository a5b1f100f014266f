"""A broker's settings under Kafka's names."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.settings.config import BrokerSettings
from broker.settings.foreign_configs import CONTROLLER_KEYS
from broker.settings.loading import load_broker_settings
from controller.config import ControllerSettings
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError, Settings

GIVEN = {"node.id": "3", "listeners": "CLIENT://h:1,LINK://:2", "log.dirs": "/x,/y", "zookeeper.connect": "z:1/chroot"}


def test_kafkas_names_are_read() -> None:
    settings = load_broker_settings({**GIVEN, "message.max.bytes": "5", "auto.create.topics.enable": "false"})
    assert (settings.node_id, settings.log_dirs, settings.message_bytes_max) == (3, ("/x", "/y"), 5)
    assert [(listener.name, listener.address) for listener in settings.listeners] == [
        ("CLIENT", HostPort("h", 1)),
        ("LINK", HostPort("0.0.0.0", 2)),
    ]
    assert not settings.may_auto_create_topics


def test_older_spellings_are_read() -> None:
    given = {"broker.id": "4", "log.dir": "/z", "listeners": "CLIENT://h:1", "zookeeper.connect": "z:1"}
    settings = load_broker_settings(given)
    assert (settings.node_id, settings.log_dirs) == (4, ("/z",))


LOGIN = {
    "listeners": "CLIENT://h:1,SASL_PLAINTEXT://h:2",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'x.PlainLoginModule required user_a="hush";',
}
REFUSED = [
    ({"node.id": "-1"}, "node.id"),
    ({"listeners": "CLIENT:9092"}, "listeners"),
    ({"listeners": "C://h:1,C://h:2"}, "listeners"),
    ({"advertised.listeners": "OTHER://h:1"}, "advertised.listeners"),
    ({"listener.security.protocol.map": "CLIENT:TLS"}, "listener.security.protocol.map"),
    ({"listener.security.protocol.map": "OTHER:SSL"}, "listener.security.protocol.map"),
    ({"listeners": "SASL_SSL://h:1"}, "listener.name.sasl_ssl.ssl.keystore.location"),
    ({"listeners": "SASL_PLAINTEXT://h:1"}, "listener.name.sasl_plaintext.sasl.enabled.mechanisms"),
    ({"listeners": "SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
    (
        {"listeners": "SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms": "PLAIN"},
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    ),
    ({**LOGIN, "connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms"),
    ({**LOGIN, "security.inter.broker.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism.inter.broker.protocol"),
    ({**LOGIN, "ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules"),
    ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol"),
    ({"authorizer.class.name": "com.example.OpaAuthorizer"}, "authorizer.class.name"),
    ({"super.users": "admin"}, "super.users"),
    ({"antipode.mirror.principals": "User:m"}, "antipode.mirror.principals"),
    ({"antipode.mirror.principals": "a-b=User:m"}, "antipode.mirror.principals"),
    ({"log.retention.ms": "soon"}, "log.retention.ms"),
    ({"compression.type": "best"}, "compression.type"),
    ({"antipode.site.number": "1024"}, "antipode.site.number"),
    ({"antipode.site.number": "1", "node.id": "3"}, "node.id"),
    ({"antipode.grpc.listener": "nowhere"}, "antipode.grpc.listener"),
    ({"num.partitions": "0"}, "num.partitions"),
    ({"zookeeper.connect": ""}, "zookeeper.connect"),
    ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.session.timeout.ms"),
    ({"group.consumer.session.timeout.ms": "60001"}, "group.consumer.session.timeout.ms"),
    ({"group.consumer.min.session.timeout.ms": "60001"}, "group.consumer.max.session.timeout.ms"),
    ({"group.consumer.heartbeat.interval.ms": "4999"}, "group.consumer.heartbeat.interval.ms"),
    ({"group.consumer.heartbeat.interval.ms": "15001"}, "group.consumer.heartbeat.interval.ms"),
    ({"group.consumer.max.heartbeat.interval.ms": "4999"}, "group.consumer.max.heartbeat.interval.ms"),
    (
        {"group.consumer.max.heartbeat.interval.ms": "90000", "group.consumer.heartbeat.interval.ms": "45000"},
        "group.consumer.session.timeout.ms",
    ),
    ({"group.consumer.assignors": "uniform,fair"}, "group.consumer.assignors"),
    ({"group.consumer.assignors": ""}, "group.consumer.assignors"),
    ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols"),
    ({"group.coordinator.rebalance.protocols": "classic,modern"}, "group.coordinator.rebalance.protocols"),
]


@pytest.mark.parametrize(("changed", "key"), REFUSED)
def test_bad_values_are_refused_by_their_key(changed: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_broker_settings({**GIVEN, **changed})
    assert refused.value.key == key


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_broker_settings({"node.id": "1"})
    assert refused.value.key == "listeners"


def test_a_site_number_gives_its_nodes_a_range() -> None:
    assert load_broker_settings({**GIVEN, "antipode.site.number": "2", "node.id": "2001"}).node_id == 2001


def notices(**given: str) -> dict[str, str]:
    """The log events about these keys (underscores for dots), by key."""
    with capture_logs() as said:
        load_broker_settings({**GIVEN, **{key.replace("_", "."): value for key, value in given.items()}})
    return {entry["key"]: entry["event"] for entry in said}


def test_keys_without_effect_and_unknown_keys_are_distinguished() -> None:
    assert notices(
        num_io_threads="8",
        replica_lag_max_messages="4000",
        lisseners="x",
        remote_log_storage_system_enable="true",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="1",
        producer_id_expiration_check_interval_ms="1",
    ) == {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "configuration key has no effect here",
        "producer.id.expiration.check.interval.ms": "configuration key has no effect here",
        "num.io.threads": "configuration key has no effect here",
        "replica.lag.max.messages": "configuration key has no effect here",
        "remote.log.storage.system.enable": "configuration key has no effect here",
        "lisseners": "configuration key is not known to this broker",
    }


def test_a_misspelt_key_is_reported_with_the_likely_one() -> None:
    given = {"leader.imbalance.check.intervall.seconds": "5", "num.partition": "3", "nothing.like.this": "1"}
    with capture_logs() as said:
        load_broker_settings({**GIVEN, **given})
    assert {entry["key"]: entry.get("meant") for entry in said} == {
        "leader.imbalance.check.intervall.seconds": "leader.imbalance.check.interval.seconds",
        "num.partition": "num.partitions",
        "nothing.like.this": None,
    }


def test_nothing_is_said_of_keys_that_the_controller_beside_the_broker_reads() -> None:
    assert notices(**dict.fromkeys(CONTROLLER_KEYS, "1")) == {}
    in_force = {field.alias for field in ControllerSettings.model_fields.values()}
    assert in_force >= CONTROLLER_KEYS


def test_keys_that_broker_and_controller_both_read_have_the_same_default() -> None:
    def defaults(settings: type[Settings]) -> dict[str | None, object]:
        return {field.alias: field.default for field in settings.model_fields.values() if not field.is_required()}

    decided, described = defaults(ControllerSettings), defaults(BrokerSettings)
    shared = {key for key in decided.keys() & described.keys() if not str(key).startswith("zookeeper.")}
    assert {"delete.topic.enable", "auto.leader.rebalance.enable", "num.partitions"} <= shared
    assert {key: decided[key] for key in shared} == {key: described[key] for key in shared}


KRAFT_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "log.dirs": "/x",
    "zookeeper.connect": "z:1",
}


def test_a_file_of_a_kraft_broker_needs_no_more_than_the_address_of_zookeeper() -> None:
    settings = load_broker_settings(KRAFT_FILE)
    assert [listener.name for listener in settings.listeners] == ["PLAINTEXT"]


def test_an_address_of_zookeeper_without_a_valid_port_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"zookeeper\.connect='foo:bar' .*'foo:bar' has no valid port"):
        load_broker_settings({**KRAFT_FILE, "zookeeper.connect": "foo:bar"})
