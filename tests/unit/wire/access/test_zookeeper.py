"""The user under which a process opens ZooKeeper sessions."""

from __future__ import annotations

import pytest

from runtime.configuration import ConfigurationError
from wire.access.zookeeper import zookeeper_access

USER = {"zookeeper.sasl.username": "kafka", "zookeeper.sasl.password": "hush"}


def test_the_creator_may_do_everything_and_others_read_what_is_no_secret() -> None:
    access = zookeeper_access({**USER, "zookeeper.set.acl": "true"})
    assert access is not None
    assert "hush" not in repr(access)
    assert len(access.acl("/config/users/alice")) == len(access.acl("/config/users")) == 1
    assert [entry.id.scheme for entry in access.acl("/brokers/ids/1")] == ["sasl", "world"]
    assert access.acl("/brokers/ids/1")[1].perms == 1, "to read"


def test_without_a_user_sessions_are_anonymous_and_without_the_setting_znodes_are_open() -> None:
    assert zookeeper_access({}) is None
    access = zookeeper_access(USER)
    assert access is not None
    assert "default_acl" not in access.client_options()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
        ({"zookeeper.sasl.username": "kafka"}, "zookeeper.sasl.password"),
        ({"zookeeper.sasl.password": "hush"}, "zookeeper.sasl.username"),
        ({**USER, "zookeeper.set.acl": "maybe"}, "zookeeper.set.acl"),
        ({**USER, "zookeeper.sasl.username": 'a"b'}, "zookeeper.sasl.username"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/nowhere.pem"},
            "zookeeper.ssl.truststore.location",
        ),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.password": "hush"},
            "zookeeper.ssl.truststore.location",
        ),
    ],
)
def test_half_an_identity_is_refused_by_its_key(given: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        zookeeper_access(given)
    assert refused.value.key == key
    assert "hush" not in str(refused.value)
