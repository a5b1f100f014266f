"""Delegation tokens for all parts of a site: the owner, the principals that may renew a token, its
expiry, and the password that follows from its id. Pure. Source: KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, NamedTuple

from wire.rules.principals import Principal

SECRET_KEY: Final = "delegation.token.secret.key"  # noqa: S105  a name
FORMER_SECRET_KEY: Final = "delegation.token.master.key"  # noqa: S105  a name
"""Kafka's name of it before 3.0."""
EXPIRY_CHECK_INTERVAL_MS: Final = "delegation.token.expiry.check.interval.ms"
HMAC_HASH: Final = "sha512"
TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: no later time can be answered."""


class DelegationToken(NamedTuple):
    """One token; times in Unix ms. `expires_at_ms` moves with each renewal, up to `ends_at_ms`."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    expires_at_ms: int
    ends_at_ms: int

    def belongs_to(self, principal: Principal) -> bool:
        """True for principals that may renew, expire and describe the token without an ACL: owner,
        requester and renewers.
        """
        return principal in (self.owner, self.requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        """True if clients cannot log in with the token because it has expired."""
        return min(self.expires_at_ms, self.ends_at_ms) < now_ms


def token_hmac(secret: str, token_id: str) -> bytes:
    """The HMAC of a token id, which proves that a site issued it: all brokers of a site have the
    same secret.
    """
    return hmac.new(secret.encode(), token_id.encode(), HMAC_HASH).digest()


def secret_check(secret: str) -> int:
    """One byte that is the same at every site with this secret, and another one with another secret
    in 255 of 256 cases.
    """
    return hashlib.sha256(b"delegation tokens\0" + secret.encode()).digest()[0]


def token_password(token: bytes) -> str:
    """The password of a SCRAM login by a token with this HMAC."""
    return base64.b64encode(token).decode()
