"""A broker's settings under Kafka's names."""

from __future__ import annotations

import pytest

from broker.config import load_broker_settings
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError

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


REFUSED = [
    ({"node.id": "-1"}, "node.id"),
    ({"listeners": "CLIENT:9092"}, "listeners"),
    ({"listeners": "C://h:1,C://h:2"}, "listeners"),
    ({"advertised.listeners": "OTHER://h:1"}, "advertised.listeners"),
    ({"listener.security.protocol.map": "CLIENT:SASL_SSL"}, "listener.security.protocol.map"),
    ({"antipode.site.number": "1024"}, "antipode.site.number"),
    ({"antipode.site.number": "1", "node.id": "3"}, "node.id"),
    ({"antipode.grpc.listener": "nowhere"}, "antipode.grpc.listener"),
    ({"num.partitions": "0"}, "num.partitions"),
    ({"zookeeper.connect": ""}, "zookeeper.connect"),
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
