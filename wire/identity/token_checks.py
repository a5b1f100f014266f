"""The options by which signed tokens are accepted, by Kafka's names (KIP-768), and the check that
follows from them. Listeners of brokers and the HTTP bridge have the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from wire.identity.core.json_web_tokens import TokenHolder, TokenRules, UnknownKey, holder_of_token
from wire.identity.key_sets import URL, KeySet

CALLBACK_CLASS: Final = "sasl.server.callback.handler.class"
UNSECURED_CLASS: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_CLASSES: Final = (UNSECURED_CLASS, "OAuthBearerValidatorCallbackHandler")
REFRESH_MS: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
SKEW_S: Final = "sasl.oauthbearer.clock.skew.seconds"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
NAME_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
SCOPE_CLAIM: Final = "sasl.oauthbearer.scope.claim.name"
SCOPES: Final = "antipode.sasl.oauthbearer.required.scopes"
TOKEN_KEYS: Final = (
    CALLBACK_CLASS,
    URL,
    REFRESH_MS,
    SKEW_S,
    AUDIENCE,
    ISSUER,
    NAME_CLAIM,
    SCOPE_CLAIM,
    SCOPES,
)


class TokenKeys:
    """The key sets of one listener, at most one."""

    def __init__(self) -> None:
        self.found: list[KeySet] = []

    def of(self, url: str, *, refresh_ms: int) -> KeySet:
        """The key set at the URL. One that is in use keeps its keys when the settings are read
        again: until its URL answers, no token would be accepted.
        """
        made = next((keys for keys in self.found if keys.url == url), None) or KeySet(url, refresh_ms=refresh_ms)
        made.refresh_ms = refresh_ms
        self.found = [made]
        return made

    async def look(self, clock: Clock) -> None:
        """Read again what has changed."""
        for keys in self.found:
            await keys.look(clock)


def read_token_check(value_of: Callable[[str], str | None], tokens: TokenKeys) -> Callable[[str], TokenHolder]:
    """A function that checks a token by the listener's keys and rules and returns its holder, or
    raises InvalidToken. `value_of` returns the value of an option. ConfigurationError.
    """

    def value(key: str) -> str:
        return (value_of(key) or "").strip()

    def number(key: str, default: int) -> int:
        text = value(key)
        if text and not text.isdecimal():
            raise ConfigurationError(key, text, "accepted: a whole number, 0 or more")
        return int(text) if text else default

    named = value(CALLBACK_CLASS).rpartition(".")[2]
    if named and named not in _CLASSES:
        raise ConfigurationError(CALLBACK_CLASS, named, f"accepted: {' or '.join(_CLASSES)}, or nothing")
    is_unsecured = named == UNSECURED_CLASS
    if not value(URL) and not is_unsecured:
        accepted = f"the key set of the authorization server; tokens without signature need {CALLBACK_CLASS}="
        raise ConfigurationError(URL, "(not set)", f"{accepted}{UNSECURED_CLASS}")
    rules = TokenRules(
        is_unsecured=is_unsecured,
        audiences=frozenset(item.strip() for item in value(AUDIENCE).split(",") if item.strip()),
        issuer=value(ISSUER),
        name_claim=value(NAME_CLAIM) or "sub",
        scope_claim=value(SCOPE_CLAIM) or "scope",
        scopes=frozenset(item.strip() for item in value(SCOPES).split(",") if item.strip()),
        skew_ms=1000 * number(SKEW_S, 30),
    )
    keys = tokens.of(value(URL), refresh_ms=number(REFRESH_MS, 3_600_000)) if value(URL) else None
    clock = SystemClock()

    def check(token: str) -> TokenHolder:
        try:
            return holder_of_token(token, rules, {} if keys is None else keys.keys, clock.now_ms())
        except UnknownKey:
            if keys is not None:
                keys.note_unknown_key()
            raise

    return check
