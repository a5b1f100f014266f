"""Headers, files of users and rules, and the security settings that a bridge takes."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import bcrypt
import pytest

from bridge.access.passwords import WAITING_MAX, Passwords
from bridge.access.security import load_bridge_security
from bridge.config import load_bridge_settings
from bridge.core.authorization_header import BasicLogin, BearerLogin, read_authorization
from bridge.core.impersonation import InvalidRule, read_rules, rule_of
from bridge.core.password_file import read_passwords
from bridge.core.refusals import Refused
from cli.credentials.passwords import with_user
from runtime.configuration import ConfigurationError
from tests.support.security.identities import Identities

RULES = {
    "impersonation.rules": "staff,all",
    "impersonation.staff.principals": "alice|bob",
    "impersonation.staff.client.sasl.username": "staff",
    "impersonation.all.principals": ".*",
}


def basic(text: bytes) -> str:
    return f"Basic {b64encode(text).decode()}"


def test_headers_are_read() -> None:
    assert read_authorization(basic(b"anna:a:b")) == BasicLogin("anna", b"a:b")
    assert read_authorization("bearer x.y.z") == BearerLogin("x.y.z")
    assert read_authorization("Negotiate abc") is None
    for wrong in ("Basic", "Basic !", basic(b"anna"), basic(b":x"), basic(b"\xff:x")):
        with pytest.raises(ValueError, match="base64"):
            read_authorization(wrong)
    assert "a:b" not in repr(read_authorization(basic(b"anna:a:b")))


def test_users_are_lines_of_bcrypt_alone() -> None:
    text = with_user("# users\n\n", "anna", "one")
    text = with_user(with_user(text, "bob", "two"), "anna", "three")
    found = read_passwords(text)
    assert list(found) == ["bob", "anna"]
    assert bcrypt.checkpw(b"three", found["anna"])
    for wrong in ("anna:{SHA}x", "anna:$apr1$x", "anna", ":x", text + text, "", text.replace("$10$", "$31$")):
        with pytest.raises(ValueError, match=r"line \d|no user"):
            read_passwords(wrong)
    for name, password in (("a:b", "x"), ("", "x"), ("anna", ""), ("anna", "x" * 73)):
        with pytest.raises(ValueError, match=r"a name is|a password has"):
            with_user("", name, password)


def test_the_first_rule_that_matches_all_of_a_name_counts() -> None:
    rules = read_rules(RULES)
    found = [rule_of(rules, name) for name in ("alice", "alice2", "bob")]
    assert [rule.name for rule in found if rule] == ["staff", "all", "staff"]
    assert rule_of(rules[:1], "eve") is None
    assert "staff" not in repr(rules[0].options[0][0])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"impersonation.rules": ""}, "impersonation.rules"),
        ({"impersonation.rules": "staff,staff"}, "impersonation.rules"),
        ({"impersonation.staff.principals": "("}, "impersonation.staff.principals"),
        ({"impersonation.other.principals": "x"}, "impersonation.other.principals"),
        ({"impersonation.staff.sasl.password": "hush"}, "impersonation.staff.sasl.password"),
        ({"impersonation.staff.client.bootstrap.servers": "x:1"}, "impersonation.staff.client.bootstrap.servers"),
        ({"impersonation.rules": "staff,all,third"}, "impersonation.third.principals"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(changes: Mapping[str, str], key: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        read_rules({**RULES, **changes})
    assert refused.value.key == key
    assert "hush" not in str(refused.value)


async def test_passwords_are_checked_once_and_only_so_many_wait(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"anna:{bcrypt.hashpw(b'right', bcrypt.gensalt(4)).decode()}\n")
    passwords = Passwords(file)
    try:
        assert await passwords.is_right("anna", b"right")
        wrong = [asyncio.create_task(passwords.is_right("anna", b"wrong")) for _ in range(WAITING_MAX + 20)]
        outcomes = await asyncio.gather(*wrong, passwords.is_right("anna", b"right"), return_exceptions=True)
        assert outcomes[-1] is True, "a client that is known waits for no check"
        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert [one.status for one in refused] == [429] * 20
        assert not await passwords.is_right("eve", b"right")
        assert not await passwords.is_right("anna", b"x" * 73)
    finally:
        passwords.stop()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    identities = Identities(tmp_path)
    users, rules = tmp_path / "users", tmp_path / "rules"
    users.write_text(with_user("", "anna", "x"))
    rules.write_text("".join(f"{key}={value}\n" for key, value in RULES.items()))
    return {
        "bootstrap.servers": "a:1",
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(identities.issue("bridge")),
        "ssl.truststore.location": str(identities.trusted),
        "authentication.method": "BASIC",
        "antipode.authentication.users.location": str(users),
        "antipode.impersonation.rules.location": str(rules),
    }


def loaded(properties: Mapping[str, str]) -> None:
    load_bridge_security(properties, load_bridge_settings(properties))


def test_half_a_protection_is_refused_by_its_key(files: dict[str, str]) -> None:
    loaded(files)
    loaded({**files, "authentication.method": "BASIC,SSL", "ssl.client.auth": "required"})
    loaded({**files, "authentication.method": "BASIC,SSL", "ssl.client.authentication": "REQUESTED"})
    plain = {key: value for key, value in files.items() if not key.startswith("ssl.")}
    loaded({**plain, "listeners": "http://127.0.0.1:0", "antipode.allow.plaintext": "true"})
    for changes, key in (
        ({"listeners": "http://127.0.0.1:0"}, "listeners"),
        ({"authentication.method": "DIGEST"}, "authentication.method"),
        ({"authentication.method": "NONE"}, "authentication.method"),
        ({"authentication.method": "SSL"}, "ssl.client.auth"),
        ({"authentication.method": "BEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"antipode.authentication.users.location": ""}, "antipode.authentication.users.location"),
        ({"antipode.authentication.users.location": "/nowhere"}, "antipode.authentication.users.location"),
        ({"antipode.impersonation.rules.location": "/nowhere"}, "antipode.impersonation.rules.location"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location"),
        ({"ssl.principal.mapping.rules": "RULE"}, "ssl.principal.mapping.rules"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            loaded({**files, **changes})
        assert refused.value.key == key, changes
    with pytest.raises(ConfigurationError) as refused:
        loaded({**plain, "listeners": "http://127.0.0.1:0"})
    assert refused.value.key == "listeners"
