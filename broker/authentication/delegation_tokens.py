"""The site's delegation tokens as one broker knows them: by id, by HMAC, and as credentials of
SCRAM logins.

Tokens come with the image; HMACs follow from the broker's `delegation.token.secret.key`, and
credentials are derived from HMACs at the first use of a token: in a thread, because that takes
milliseconds, in which other clients are served. A broker without the key has no tokens.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from runtime.clock import Clock, SystemClock
from wire.rules.delegation_tokens import (
    FORMER_SECRET_KEY,
    SECRET_KEY,
    DelegationToken,
    secret_check,
    token_hmac,
    token_password,
)
from wire.rules.scram import ITERATIONS_MIN, SALT_BYTES, ScramCredential, credential_of, salted_password


class TokenCredential(NamedTuple):
    """The credential that checks a login by a token, and the token."""

    credential: ScramCredential
    token: DelegationToken


class DelegationTokens:
    """The delegation tokens of the site, as this broker's image has them."""

    def __init__(self, secret: str = "", clock: Clock | None = None) -> None:
        self._secret = secret
        self._clock: Clock = clock or SystemClock()
        self._tokens: Mapping[str, DelegationToken] = {}
        self._by_hmac: dict[bytes, str] | None = None
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._deriving: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def is_enabled(self) -> bool:
        """True if the broker has the secret."""
        return bool(self._secret)

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        """All tokens by id, including expired ones that have not been removed yet."""
        return self._tokens if self._secret else {}

    def take(self, tokens: Mapping[str, DelegationToken]) -> None:
        """Replace the tokens by those of the newest image."""
        self._tokens = tokens
        self._by_hmac = None
        self._credentials = {key: found for key, found in self._credentials.items() if key[1] in tokens}

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token."""
        return token_hmac(self._secret, token_id)

    def derived_secret(self, purpose: bytes) -> bytes | None:
        """A secret for another purpose that all brokers with the same key share; None without the
        key.
        """
        return hmac.digest(self._secret.encode(), purpose, "sha256") if self._secret else None

    @property
    def secret_check(self) -> int:
        """One byte of a hash of the secret, by which sites are compared."""
        return secret_check(self._secret)

    def by_hmac(self, token: bytes) -> DelegationToken | None:
        """The token with this HMAC."""
        if self._by_hmac is None:
            self._by_hmac = {self.hmac_of(token_id): token_id for token_id in self.tokens}
        found = self._tokens.get(self._by_hmac.get(token, ""))
        # compared once more in constant time: the table lookup is not
        return found if found is not None and hmac.compare_digest(self.hmac_of(found.token_id), token) else None

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """The credential that checks a login by this token; None if the token does not exist or has
        expired.
        """
        token = self._valid(token_id)
        if token is None:
            return None
        key = (mechanism, token_id)
        found = self._credentials.get(key)
        if found is None:
            # only for clients that send SASL messages without SaslAuthenticate
            found = self._credentials[key] = _derived(mechanism, self.hmac_of(token_id))
        return TokenCredential(found, token)

    def deriving(self, mechanism: str, token_id: str) -> Awaitable[None] | None:
        """What a login by this token has to await before `credential`; None if it has to await
        nothing. Logins by the same token await the same.
        """
        key = (mechanism, token_id)
        if key in self._credentials or self._valid(token_id) is None:
            return None
        task = self._deriving.get(key)
        if task is None:
            task = self._deriving[key] = asyncio.create_task(self._derive(key))
            task.add_done_callback(lambda _: self._deriving.pop(key, None))
        # a client that disconnects must not end the task of the others
        return asyncio.shield(task)

    async def _derive(self, key: tuple[str, str]) -> None:
        mechanism, token_id = key
        found = await asyncio.to_thread(_derived, mechanism, self.hmac_of(token_id))
        # the token may have been removed meanwhile
        if token_id in self._tokens:
            self._credentials[key] = found

    def _valid(self, token_id: str) -> DelegationToken | None:
        token = self.tokens.get(token_id)
        return None if token is None or token.is_expired(self._clock.now_ms()) else token


def _derived(mechanism: str, token: bytes) -> ScramCredential:
    salt = secrets.token_bytes(SALT_BYTES)
    # the lowest allowed number: a token's HMAC is random, so more iterations add nothing
    salted = salted_password(mechanism, token_password(token), salt, ITERATIONS_MIN)
    return credential_of(mechanism, salted, salt=salt, iterations=ITERATIONS_MIN)


def read_token_secret(properties: Mapping[str, str]) -> str:
    """The secret in a broker's file; empty if the broker has no tokens."""
    return properties.get(SECRET_KEY, "").strip() or properties.get(FORMER_SECRET_KEY, "").strip()
