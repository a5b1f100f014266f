"""The tables of docs/security.md and the code have the same options, roles and audit fields, and
each option that can have a wrong value refuses it by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from broker.authentication.listener_security import SECURITY_KEYS, read_listener_security
from broker.network.admin_audit import AUDITED
from runtime.configuration import ConfigurationError
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.security.identities import Identities
from wire.access.core.roles import Role
from wire.access.core.subjects import subjects_of
from wire.access.settings import CONTROL_KEYS, load_control_settings
from wire.access.zookeeper import ZOOKEEPER_KEYS, zookeeper_access
from wire.control import broker_pb2, controller_pb2, mirror_pb2, site_pb2

PAGE = Path(__file__).parents[4] / "docs" / "security.md"
SHARED_FIELDS = {
    "event",
    "principal",
    "role",
    "address",
    "interface",
    "listener",
    "client_id",
    "is_dry_run",
    "outcome",
    "reason",
}
"""Fields of every line, or of every line of one interface."""


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level = len(title) - len(title.lstrip("#"))
    _, _, rest = PAGE.read_text().partition(f"\n{title}\n")
    assert rest, title
    return re.split(rf"\n#{{1,{level}}} ", rest)[0]


def documented(*titles: str) -> set[str]:
    """The names in code style in the first column of the sections' tables."""
    rows = [line.split("|")[1] for title in titles for line in section(title).splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_tables_of_listeners_and_logins_have_the_options_of_the_code() -> None:
    found = documented("## Listeners", "## Logins")
    assert {name for name in found if name.startswith("ssl.")} == {
        name for name in SECURITY_KEYS if name.startswith("ssl.")
    }
    tokens = ("sasl.oauthbearer.", "antipode.sasl.", "sasl.server.")
    assert {name for name in found if name.startswith(tokens)} == {
        name for name in SECURITY_KEYS if name.startswith(tokens)
    }
    text = PAGE.read_text()
    assert [name for name in SECURITY_KEYS if name not in text] == []


def test_the_tables_of_the_control_plane_and_of_zookeeper_have_the_options_of_the_code() -> None:
    roles = {f"antipode.control.role.{role}.subjects" for role in Role}
    control = {name for name in documented("## The control plane") if name.startswith("antipode.")}
    assert control - {"antipode.control.role.ROLE.subjects"} | roles == CONTROL_KEYS
    zookeeper = documented("## ZooKeeper") | {"zookeeper.ssl.client.enable"}
    assert zookeeper == ZOOKEEPER_KEYS
    assert {name for name in documented("## The control plane") if name in set(Role)} == set(Role)


def test_the_table_of_the_audit_log_has_the_fields_that_are_written() -> None:
    messages = [
        message
        for module in (broker_pb2, controller_pb2, mirror_pb2, site_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for message in (method.input_type for method in service.methods)
    ]
    fields: set[str] = set(SHARED_FIELDS)
    for message in messages:
        fields |= set(subjects_of(_filled(message._concrete_class())))
    for _, subjects in AUDITED.values():
        fields |= set(subjects(MagicMock()))
    assert documented("## The audit log") == fields


def _filled(message: Any) -> Any:
    """Fills every field of the message that the audit log can name."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated and field.message_type is not None:
            _name(value.add())
        elif field.is_repeated:
            value.extend(["x"] if field.type == field.TYPE_STRING else [])
        elif field.name == "record":
            value.name, value.active_site, value.epoch, value.phase = "a-b", "a", 1, 1
        elif isinstance(value, bool | int | str):
            setattr(message, field.name, "x" if isinstance(value, str) else type(value)(1))
    return message


def _name(entry: Any) -> None:
    for name in ("name", "topic", "group"):
        if isinstance(getattr(entry, name, None), str):
            setattr(entry, name, "x")


WRONG: Mapping[str, str] = {
    "ssl.keystore.location": "/nowhere.pem",
    "ssl.keystore.password": "of-nothing",
    "ssl.keystore.key": "no key",
    "ssl.keystore.certificate.chain": "no certificate",
    "ssl.keystore.type": "BKS",
    "ssl.truststore.location": "/nowhere.pem",
    "ssl.truststore.password": "of-nothing",
    "ssl.truststore.certificates": "no certificate",
    "ssl.truststore.type": "BKS",
    "ssl.client.auth": "perhaps",
    "ssl.principal.mapping.rules": "RULE:(/x/",
    "ssl.enabled.protocols": "SSLv3",
    "ssl.protocol": "SSLv3",
    "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "ssl.endpoint.identification.algorithm": "dns",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.oauthbearer.jwks.endpoint.url": "ftp://x/keys",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "soon",
    "sasl.oauthbearer.clock.skew.seconds": "-1",
    "sasl.server.callback.handler.class": "com.example.Own",
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_of_a_listener_s_option_is_refused_by_its_name(tmp_path: Path, key: str) -> None:
    identities = Identities(tmp_path)
    TokenSigner(tmp_path / "keys.json")
    right = {
        "ssl.keystore.location": str(identities.issue("broker")),
        "ssl.truststore.location": str(identities.trusted),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
    }
    read_listener_security(right, {"CLIENT": "SASL_SSL"})
    with pytest.raises(ConfigurationError) as refused:
        read_listener_security({**right, key: WRONG[key]}, {"CLIENT": "SASL_SSL"})
    # a key and its chain belong together, and so do a store and its password: either may be named
    assert key.rpartition(".")[0].rpartition(".")[0] in refused.value.key
    assert "of-nothing" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("antipode.control.ssl.client.auth", "perhaps"),
        ("antipode.control.ssl.keystore.type", "BKS"),
        ("antipode.control.role.mirror.subjects", "("),
        ("antipode.allow.plaintext", "perhaps"),
        ("antipode.control.ssl.endpoint.identification.algorithm", "dns"),
    ],
)
def test_a_wrong_value_of_the_control_plane_s_option_is_refused_by_its_name(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_control_settings({key: value})
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zookeeper.sasl.username", "user"),
        ("zookeeper.sasl.password", "password"),
        ("zookeeper.set.acl", "true"),
        ("zookeeper.ssl.client.enable", "perhaps"),
        ("zookeeper.ssl.truststore.location", "/nowhere.pem"),
        ("zookeeper.ssl.keystore.location", "/nowhere.pem"),
        ("zookeeper.ssl.truststore.type", "BKS"),
        ("zookeeper.ssl.keystore.type", "BKS"),
        ("zookeeper.ssl.truststore.password", "of-nothing"),
        ("zookeeper.ssl.keystore.password", "of-nothing"),
        ("zookeeper.ssl.endpoint.identification.algorithm", "dns"),
    ],
)
def test_a_wrong_value_of_zookeeper_s_option_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        zookeeper_access({"zookeeper.ssl.client.enable": "true", key: value})
    assert refused.value.key.startswith("zookeeper.")
    assert "of-nothing" not in str(refused.value)
