"""A broker's report on its listeners and certificates for the checks of a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.loading import load_broker_settings
from broker.site.security_survey import names_host, security_survey
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.secured_kafka import PLAIN_MODULE
from tests.support.security.identities import Identities
from wire.control.site_pb2 import SecuritySurvey
from wire.rules.delegation_tokens import secret_check

RULES = "RULE:^CN=([^,]*).*$/$1/L,DEFAULT"
AUDIENCE = "sasl.oauthbearer.expected.audience"


def test_a_survey_has_what_decides_about_clients_and_no_secret(tmp_path: Path) -> None:
    identities = Identities(tmp_path)
    keys = tmp_path / "keys.json"
    TokenSigner(keys)
    settings = load_broker_settings(
        {
            "node.id": "1",
            "listeners": "OPEN://:0,CLIENT://:1,TOKENS://:2",
            "advertised.listeners": "OPEN://x:0,CLIENT://localhost:1,TOKENS://b.example.org:2",
            "listener.security.protocol.map": "OPEN:PLAINTEXT,CLIENT:SSL,TOKENS:SASL_SSL",
            "log.dirs": "none",
            "zookeeper.connect": "none:1",
            "ssl.keystore.location": str(identities.issue("broker")),
            "ssl.truststore.location": str(identities.trusted),
            "ssl.enabled.protocols": "TLSv1.3",
            "listener.name.client.ssl.client.auth": "required",
            "listener.name.client.ssl.principal.mapping.rules": RULES,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"listener.name.tokens.oauthbearer.{AUDIENCE}": "kafka",
            **identities.control("control", "antipode://broker/1"),
            "delegation.token.secret.key": "the secret of tokens",
        }
    )
    survey = security_survey(settings, ClusterImage(site="a", node_id=1))
    plain, client, tokens = survey.listeners
    assert (plain.tls_versions, plain.certificate_issuer, plain.unnamed_host) == ([], "", "")
    assert (client.client_auth, client.mapping_rules, client.unnamed_host) == ("required", RULES, "")
    assert (tokens.mapping_rules, tokens.unnamed_host) == ("DEFAULT", "b.example.org")
    assert tokens.token_rules[AUDIENCE] == "kafka"
    assert client.tls_versions == ["TLSv1.3"]
    assert client.certificate_issuer == "CN=tests"
    (authority,) = client.authorities_found.values()
    assert authority.subject == "CN=tests"
    assert authority.ends_at_ms > client.certificate_ends_at_ms > 0
    assert survey.control_certificate_ends_at_ms > 0
    assert "PRIVATE" not in str(survey)
    assert survey.delegation_token_secret == secret_check("the secret of tokens") != secret_check("another one")
    assert "the secret" not in str(survey)


def survey_with(users: str) -> SecuritySurvey:
    """The survey of a broker whose listener CLIENT has these users of PLAIN."""
    settings = load_broker_settings(
        {
            "node.id": "1",
            "listeners": "OPEN://:0,CLIENT://:1",
            "listener.security.protocol.map": "OPEN:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "log.dirs": "none",
            "zookeeper.connect": "none:1",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        }
    )
    return security_survey(settings, ClusterImage(site="a", node_id=1))


def test_a_listener_without_logins_may_lack_the_users_of_others() -> None:
    assert survey_with('user_alice="secret"').users == ["PLAIN alice"]


def test_a_byte_of_a_hash_shows_another_password_and_nothing_of_it() -> None:
    survey = survey_with('user_alice="secret" user_bob="secret"')
    plain, found = survey.listeners
    assert not plain.plain_passwords
    assert set(found.plain_passwords) == {"alice", "bob"}
    assert all(check in range(256) for check in found.plain_passwords.values())
    # the name counts: equal passwords of two users are not to be seen
    assert found.plain_passwords["alice"] != found.plain_passwords["bob"]
    assert survey_with('user_alice="secret"').listeners[1].plain_passwords["alice"] == found.plain_passwords["alice"]
    assert survey_with('user_alice="other"').listeners[1].plain_passwords["alice"] != found.plain_passwords["alice"]
    assert "secret" not in str(survey)


@pytest.mark.parametrize(
    ("names", "host", "is_named"),
    [
        (["localhost"], "LOCALHOST", True),
        (["10.0.0.1"], "10.0.0.1", True),
        (["::1"], "[::1]", True),
        (["*.example.org"], "b.example.org", True),
        (["*.example.org"], "b.c.example.org", False),
        (["example.org"], "b.example.org", False),
        ([], "localhost", False),
    ],
)
def test_a_certificate_names_a_host_by_a_name_an_address_or_a_wildcard(
    names: list[str], host: str, is_named: bool
) -> None:
    assert names_host(names, host) is is_named
