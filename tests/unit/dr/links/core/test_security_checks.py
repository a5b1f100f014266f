"""The checks name the users that the standby would refuse, before a failover."""

from __future__ import annotations

import pytest

from dr.links.core.link_preflight import Outcome
from dr.links.core.security_checks import security_checks
from wire.control.site_pb2 import AuthoritySurvey, ListenerSurvey, PrincipalAcls, SecuritySurvey

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
ISSUER = "sasl.oauthbearer.expected.issuer"


def survey(**changed: object) -> SecuritySurvey:
    given: dict[str, object] = {
        "has_authorizer": True,
        "super_users": ["User:admin"],
        "users": ["PLAIN alice", "SCRAM-SHA-256 bob"],
        "acls": [PrincipalAcls(principal="User:alice", acls=[1, 2])],
        "listeners": [listener()],
        **changed,
    }
    return SecuritySurvey(**given)  # type: ignore[arg-type]


def listener(**changed: object) -> ListenerSurvey:
    given: dict[str, object] = {
        "name": "CLIENT",
        "protocol": "SASL_SSL",
        "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
        "client_auth": "requested",
        "authorities": ["aa"],
        "certificate_ends_at_ms": NOW_MS + 100 * DAY_MS,
        **changed,
    }
    return ListenerSurvey(**given)  # type: ignore[arg-type]


def warnings(active: SecuritySurvey, standby: SecuritySurvey, *, is_made: bool = True) -> list[str]:
    checks = security_checks(active, standby, sites=("a", "b"), now_ms=NOW_MS, is_made=is_made)
    assert {check.check for check in checks} == {"principals", "listeners", "certificates"}
    return [check.detail for check in checks if check.outcome is not Outcome.OK]


def test_users_that_only_the_standby_has_are_no_problem() -> None:
    more = survey(users=[*survey().users, "PLAIN carl"], super_users=["User:admin", "User:b"])
    assert warnings(survey(), more) == []


def test_a_user_whom_one_site_lacks_has_no_other_password() -> None:
    here, there = listener(plain_passwords={"alice": 1}), listener(plain_passwords={"carl": 2})
    assert warnings(survey(listeners=[here]), survey(listeners=[there])) == []


@pytest.mark.parametrize(
    ("active", "standby", "detail"),
    [
        ({}, {"has_authorizer": False}, "b has no authorizer, so ACLs of a have no effect there: set authorizer.class.name"),
        ({"has_authorizer": False}, {}, "a has no authorizer and b has one, which denies every access that no ACL allows"),
        ({}, {"super_users": []}, "super.users of b lacks User:admin"),
        ({}, {"users": ["SCRAM-SHA-256 bob"]}, "users of PLAIN cannot log in at b: alice"),
        ({}, {"users": ["PLAIN alice"]}, "SCRAM users are missing at b: SCRAM-SHA-256 bob"),
        ({}, {"acls": [PrincipalAcls(principal="User:alice", acls=[2])]}, "ACLs are missing at b, by principal: User:alice (1)"),
        (
            {"listeners": [listener(plain_passwords={"alice": 1, "carl": 2})]},
            {"listeners": [listener(plain_passwords={"alice": 3, "carl": 2})]},
            "users of PLAIN have another password at listener CLIENT of b: alice",
        ),
        (
            {"delegation_tokens": 2},
            {"delegation_token_secret": 7},
            "2 delegation tokens of a do not hold at b: the brokers of a have no delegation.token.secret.key",
        ),
        (
            {"delegation_tokens": 2, "delegation_token_secret": 7},
            {},
            "2 delegation tokens of a do not hold at b: the brokers of b have no delegation.token.secret.key",
        ),
        (
            {"delegation_token_secret": 7},
            {"delegation_token_secret": 0},
            "delegation tokens of a do not hold at b, whose brokers have another delegation.token.secret.key",
        ),
        ({}, {"listeners": []}, "b has no listener CLIENT"),
        ({}, {"listeners": [listener(protocol="SASL_PLAINTEXT")]}, "listener CLIENT of b is SASL_PLAINTEXT, not SASL_SSL"),
        ({}, {"listeners": [listener(mechanisms=["PLAIN"])]}, "listener CLIENT of b does not offer SCRAM-SHA-256"),
        (
            {},
            {"listeners": [listener(authorities=["bb"])]},
            "listener CLIENT of b does not trust an authority (SHA-256 aa), whose clients may connect to a",
        ),
        (
            {"listeners": [listener(authorities_found={"aa": AuthoritySurvey(subject="CN=shop")})]},
            {"listeners": [listener(authorities=["bb"])]},
            "listener CLIENT of b does not trust CN=shop, whose clients may connect to a",
        ),
        (
            {"listeners": [listener(protocol="SSL", mapping_rules="DEFAULT")]},
            {"listeners": [listener(protocol="SSL", mapping_rules="RULE:^CN=(.*?),.*$/$1/")]},
            ("listener CLIENT of b maps certificates to other principals: ssl.principal.mapping.rules is "
            "'RULE:^CN=(.*?),.*$/$1/' there and 'DEFAULT' at a"),
        ),
        (
            {"listeners": [listener(protocol="SSL")]},
            {"listeners": [listener(protocol="SSL", client_auth="none")]},
            ("listener CLIENT of b asks no client for a certificate (ssl.client.auth), so that all are "
            "User:ANONYMOUS there"),
        ),
        (
            {},
            {"listeners": [listener(client_auth="required")]},
            "listener CLIENT of b refuses clients without a certificate (ssl.client.auth=required), and a accepts them",
        ),
        (
            {"listeners": [listener(tls_versions=["TLSv1.2", "TLSv1.3"])]},
            {"listeners": [listener(tls_versions=["TLSv1.3"])]},
            "listener CLIENT of b does not accept TLSv1.2 (ssl.enabled.protocols)",
        ),
        (
            {"listeners": [listener(mechanisms=["OAUTHBEARER"], token_rules={ISSUER: "https://x"})]},
            {"listeners": [listener(mechanisms=["OAUTHBEARER"], token_rules={})]},
            f"listener CLIENT of b has {ISSUER}=, and a has {ISSUER}=https://x: tokens may be refused there",
        ),
        (
            {"listeners": [listener(certificate_issuer="CN=one")]},
            {"listeners": [listener(certificate_issuer="CN=two")]},
            ("the certificate of listener CLIENT of b is issued by CN=two, that of a by CN=one: "
            "clients have to trust both"),
        ),
        (
            {},
            {"listeners": [listener(unnamed_host="b.example.org")]},
            "the certificate of listener CLIENT of b does not name b.example.org, the host that clients connect to",
        ),
        (
            {},
            {"listeners": [listener(authorities_found={"aa": AuthoritySurvey(subject="CN=old", ends_at_ms=NOW_MS - DAY_MS)})]},
            "CN=old, trusted by listener CLIENT of b, has ended at 2023-11-13T22:13:20.000Z",
        ),
        (
            {},
            {"control_certificate_ends_at_ms": NOW_MS + DAY_MS},
            "the control plane's certificate of a broker of b ends at 2023-11-15T22:13:20.000Z",
        ),
        (
            {},
            {"listeners": [listener(certificate_ends_at_ms=NOW_MS + DAY_MS)]},
            "the certificate of listener CLIENT of b ends at 2023-11-15T22:13:20.000Z",
        ),
        (
            {"listeners": [listener(certificate_ends_at_ms=NOW_MS - DAY_MS)]},
            {},
            "the certificate of listener CLIENT of a has ended at 2023-11-13T22:13:20.000Z",
        ),
    ],
)  # fmt: skip
def test_each_setting_that_the_standby_lacks_is_named(
    active: dict[str, object], standby: dict[str, object], detail: str
) -> None:
    assert warnings(survey(**active), survey(**standby)) == [detail]


def test_users_and_acls_that_a_mirror_will_carry_are_no_problem_before_there_is_one() -> None:
    assert warnings(survey(), survey(users=["PLAIN alice"], acls=[]), is_made=False) == []


@pytest.mark.parametrize("is_made", [False, True])
def test_users_that_no_mirror_carries_are_a_problem_before_there_is_a_link_too(is_made: bool) -> None:
    without = {"has_authorizer": False, "acls": [], "super_users": []}
    (warning,) = warnings(survey(**without), survey(**without, users=["PLAIN alice"]), is_made=is_made)
    assert warning == (
        "SCRAM users are missing at b: SCRAM-SHA-256 bob; without an authorizer at both sites, a mirror carries none: "
        "make them there"
    )


def test_tokens_hold_where_both_sites_have_the_same_secret_and_an_authorizer() -> None:
    own = {"delegation_tokens": 2, "delegation_token_secret": 0}
    assert warnings(survey(**own), survey(delegation_token_secret=0)) == []
    assert warnings(survey(), survey(delegation_token_secret=0)) == [], "the active site has no tokens"
    without = {"has_authorizer": False, "acls": [], "super_users": []}
    assert warnings(survey(**own, **without), survey(delegation_token_secret=0, **without)) == [
        "2 delegation tokens of a do not hold at b: without an authorizer at both sites, a mirror carries none"
    ]


def test_many_names_are_counted() -> None:
    many = survey(users=[f"PLAIN u{number}" for number in range(8)])
    assert warnings(many, survey(users=[])) == ["users of PLAIN cannot log in at b: u0, u1, u2, u3, u4 and 3 more"]
