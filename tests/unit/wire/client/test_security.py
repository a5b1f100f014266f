"""Security options by Kafka's names: valid ones, refused ones, and errors without secrets."""

from __future__ import annotations

import pytest

from runtime.configuration import ConfigurationError
from wire.client.logins import parse_login
from wire.client.security import SecurityProtocol, load_security

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f'{PLAIN_LOGIN} username="alice" password="wonder land";', ("alice", "wonder land")),
        (f"{PLAIN_LOGIN} username=alice password='it is';", ("alice", "it is")),
        (f'{PLAIN_LOGIN}\n  username="a\\"b"\n  password="c;d" ;', ('a"b', "c;d")),
        (f'{PLAIN_LOGIN} password="" username="carol";', ("carol", "")),
    ],
)
def test_logins_as_java_writes_them(line: str, found: tuple[str, str]) -> None:
    assert parse_login(line)[:2] == found


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"ssl.truststore.type": "BCFKS"}, "ssl.truststore.type"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"}, "ssl.truststore.location"),
        ({"security.protocol": "SSL", "ssl.keystore.location": __file__}, "ssl.keystore.location"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
    ],
)
def test_an_unusable_option_is_named(options: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_security(options)
    assert refused.value.key == key


@pytest.mark.parametrize(
    "login", ["secret", f"{PLAIN_LOGIN} username=secret;", 'com.example.OtherModule required password="secret";', ""]
)
def test_a_login_without_name_and_password_is_refused_without_repeating_it(login: str) -> None:
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    with pytest.raises(ConfigurationError) as refused:
        load_security(options)
    assert "secret" not in str(refused.value)


def test_without_options_nothing_is_secured() -> None:
    security = load_security({})
    assert security.protocol is SecurityProtocol.PLAINTEXT
    assert security.ssl_context() is None
    assert security.handshake() is None


def test_an_empty_file_name_is_none() -> None:
    security = load_security({"security.protocol": "ssl", "ssl.truststore.location": ""})
    assert security.truststore is None
    assert security.ssl_context() is not None
