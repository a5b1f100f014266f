"""Tokens of OAUTHBEARER: tokens that log in, and refused ones with the reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from broker.authentication.core.oauth_bearer import INVALID_TOKEN, OauthBearerExchange
from broker.authentication.core.sasl_mechanisms import Login, LoginRefused
from tests.support.lone_brokers.token_signer import TokenSigner
from wire.identity.core.json_web_tokens import InvalidToken, TokenHolder, TokenRules, holder_of_token, read_key_set

RULES = TokenRules(audiences=frozenset({"kafka"}), issuer="", name_claim="client", scopes=frozenset({"write"}))
SAID: dict[str, Any] = {"scope": "read write"}


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> TokenSigner:
    return TokenSigner(tmp_path_factory.mktemp("keys") / "keys.json")


def login(signer: TokenSigner, token: str, rules: TokenRules = RULES) -> TokenHolder:
    file: Path = signer._file
    return holder_of_token(token, rules, read_key_set(file.read_text()), int(time.time() * 1000))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_signed_token_logs_in_until_it_expires(signer: TokenSigner, algorithm: str) -> None:
    expires_at_s = int(time.time()) + 60
    assert login(signer, signer.token(algorithm, exp=expires_at_s, **SAID)) == TokenHolder("anna", expires_at_s * 1000)
    assert login(signer, signer.token(algorithm, aud=["other", "kafka"], **SAID)).name == "anna"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1000}, "expired"),
        ({"exp": None}, "no time at which it expires"),
        ({"exp": "soon"}, "exp is no time"),
        ({"nbf": 4e9}, "not valid yet"),
        ({"iat": None}, "no time at which it was issued"),
        ({"iat": 4e9}, "expires before it is valid, or before it was issued"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": "other kafka"}, "audience"),
        ({"scope": "read"}, "scope"),
        ({"client": None}, "no claim client"),
        ({"client": 7}, "no claim client"),
    ],
)
def test_a_token_that_says_something_else_is_refused(signer: TokenSigner, claims: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidToken, match=why):
        login(signer, signer.token(**{**SAID, **claims}))


def test_a_signature_that_is_wrong_or_missing_is_refused(signer: TokenSigner, tmp_path: Path) -> None:
    stranger = TokenSigner(tmp_path / "keys.json")
    head, body, signature = signer.token(**SAID).split(".")
    other = signer.token(**{**SAID, "client": "root"}).split(".")[1]
    wrong = [
        stranger.token(**SAID),
        stranger.token("ES256", **SAID),
        signer.token("none", **SAID),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{signer.token('ES256', **SAID).split('.')[0]}.{body}.{signature}",
        "a.b",
        "a.b.c",
        "....",
        "x" * 70_000,
    ]
    for token in wrong:
        with pytest.raises(InvalidToken):
            login(signer, token)


def test_a_token_without_signature_logs_in_only_where_that_was_asked_for(signer: TokenSigner) -> None:
    token = signer.token("none", **SAID)
    rules = TokenRules(is_unsecured=True, name_claim="client")
    assert holder_of_token(token, rules, {}, int(time.time() * 1000)).name == "anna"
    with pytest.raises(InvalidToken):
        holder_of_token(token + "AAAA", rules, {}, int(time.time() * 1000))


@pytest.mark.parametrize("rules", [RULES, TokenRules(is_unsecured=True, name_claim="client")])
def test_a_header_that_demands_an_extension_is_refused(signer: TokenSigner, rules: TokenRules) -> None:
    algorithm = "none" if rules.is_unsecured else "RS256"
    assert login(signer, signer.token(algorithm, **SAID), rules).name == "anna"
    with pytest.raises(InvalidToken, match="demands an extension"):
        login(signer, signer.token(algorithm, header={"crit": ["exp"], "exp": 4_000_000_000}, **SAID), rules)


def test_an_audience_may_have_spaces(signer: TokenSigner) -> None:
    rules = TokenRules(audiences=frozenset({"the orders of shop"}), name_claim="client")
    assert login(signer, signer.token(aud="the orders of shop"), rules).name == "anna"


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "", "{}", '{"keys": []}', '{"keys": [{"kty": "oct"}]}', '{"keys": 1}', '{"keys": [{}]}']
)
def test_a_text_that_is_no_key_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="key"):
        read_key_set(text)


def test_the_message_of_a_client_has_one_token_and_a_refusal_takes_two_steps() -> None:
    def check(token: str) -> Login:
        if token != "right":
            raise InvalidToken("it is wrong")
        return Login("anna")

    assert OauthBearerExchange(check).step(b"n,,\x01auth=Bearer right\x01\x01") == (b"", Login("anna"))
    assert OauthBearerExchange(check).step(b"n,a=anna,\x01auth=Bearer right\x01logicalCluster=x\x01\x01").login
    exchange = OauthBearerExchange(check)
    assert exchange.step(b"n,,\x01auth=Bearer other\x01\x01") == (INVALID_TOKEN, None)
    with pytest.raises(LoginRefused, match="it is wrong"):
        exchange.step(b"\x01")
    for message in (
        b"",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,a=bert,\x01auth=Bearer right\x01\x01",
        b"\xff",
        b"n,,\x01\x01",
    ):
        with pytest.raises(LoginRefused):
            OauthBearerExchange(check).step(message)
