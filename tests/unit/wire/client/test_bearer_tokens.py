"""Bearer tokens of a client: out of a file and from an authorization server, renewed before they
expire, and no error that repeats a secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.configuration import ConfigurationError
from tests.support.clock import ManualClock
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.security.token_server import CLIENT, SECRET, WRONG_ANSWERS, TokenServer, answering
from wire.client.bearer_tokens import BearerTokens, NoToken, TokenRequest
from wire.client.security import load_security

LIFE_S = 100
OAUTH_LINE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> TokenSigner:
    return TokenSigner(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture
def server(signer: TokenSigner) -> Iterator[TokenServer]:
    with TokenServer(signer, life_s=LIFE_S) as found:
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=int(time.time() * 1000))


def tokens_of(url: str, clock: ManualClock, *, secret: str = SECRET) -> BearerTokens:
    return BearerTokens(TokenRequest(url=url, client_id=CLIENT, client_secret=secret, scope="kafka"), clock)


def test_a_token_is_asked_for_once_and_again_before_it_expires(server: TokenServer, clock: ManualClock) -> None:
    tokens = tokens_of(server.url, clock)
    assert tokens.current() == tokens.current()
    assert tokens.current().text == server.issued[0]
    assert server.scopes == ["kafka"]
    clock.advance(0.75 * LIFE_S * 1000)
    assert tokens.current().text == server.issued[0]
    clock.advance(0.1 * LIFE_S * 1000)
    server.life_s = 10 * LIFE_S
    assert tokens.current().text == server.issued[1]


def test_the_former_token_is_used_until_it_expires_while_no_other_can_be_had(
    server: TokenServer, clock: ManualClock
) -> None:
    tokens = tokens_of(server.url, clock)
    former = tokens.current()
    server.refusal = (503, "temporarily_unavailable")
    clock.advance(0.9 * LIFE_S * 1000)
    assert tokens.current() == former
    clock.advance(0.2 * LIFE_S * 1000)
    with pytest.raises(NoToken, match=r"503 \(temporarily_unavailable\)"):
        tokens.current()


@pytest.mark.parametrize("answer", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_an_answer_of_any_bytes_gives_no_token(answer: bytes, clock: ManualClock) -> None:
    with answering(answer) as url, pytest.raises(NoToken):
        tokens_of(url, clock).current()


def test_a_wrong_secret_is_refused_and_not_repeated(server: TokenServer, clock: ManualClock) -> None:
    request = TokenRequest(url=server.url, client_id=CLIENT, client_secret="wrong words")
    with pytest.raises(NoToken, match=r"401 \(invalid_client\)") as refused:
        BearerTokens(request, clock).current()
    assert "Basic" not in str(refused.value)
    assert "wrong words" not in repr(request)


def test_a_redirection_is_not_followed_with_the_secret(server: TokenServer, clock: ManualClock) -> None:
    server.redirection = server.url.replace("/token", "/elsewhere")
    with pytest.raises(NoToken, match="302"):
        tokens_of(server.url, clock).current()
    assert server.issued == []


def test_a_file_is_read_at_each_login(signer: TokenSigner, clock: ManualClock, tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = BearerTokens(TokenRequest(url=file.as_uri()), clock)
    with pytest.raises(NoToken, match="No such file"):
        tokens.current()
    for number in range(2):
        file.write_text(signer.token(sub=str(number)) + "\n")
        assert tokens.current().text == file.read_text().strip()
    former = tokens.current()
    file.write_text("secret words, and no token")
    assert tokens.current() == former
    with pytest.raises(NoToken) as refused:
        BearerTokens(TokenRequest(url=file.as_uri()), clock).current()
    assert "secret" not in str(refused.value)
    file.write_text(signer.token(exp=time.time() - 5))
    with pytest.raises(NoToken, match="expired"):
        BearerTokens(TokenRequest(url=file.as_uri()), clock).current()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://far.example.org/"}, "sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://far.example.org/"},
            "sasl.oauthbearer.client.credentials.client.id",
        ),
        ({"sasl.jaas.config": f'{OAUTH_LINE} unsecuredLoginStringClaim_sub="alice";'}, "sasl.jaas.config"),
        ({"sasl.login.callback.handler.class": "com.example.Mine"}, "sasl.login.callback.handler.class"),
    ],
)
def test_an_unusable_option_is_named(options: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **options})
    assert refused.value.key == key


def test_the_client_s_id_and_secret_may_be_in_the_login_line(server: TokenServer) -> None:
    security = load_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": server.url,
            "sasl.jaas.config": f'{OAUTH_LINE} clientId="{CLIENT}" clientSecret="{SECRET}" scope="kafka";',
        }
    )
    assert security.bearer_tokens.current().text == server.issued[0]
    assert SECRET not in repr(security)
