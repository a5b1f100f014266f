"""Rules for making, renewing and expiring delegation tokens, and for showing them to clients. Pure.
Source: KIP-48, KIP-373, Apache Kafka's `DelegationTokenControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from wire.rules.delegation_tokens import TIME_MS_MAX, DelegationToken
from wire.rules.principals import ANONYMOUS, Principal


class TokenLifetimes(NamedTuple):
    """In ms: `longest` from issue to the end, `renewal` from a renewal to the next expiry."""

    longest_ms: int
    renewal_ms: int


def may_ask(principal: Principal, *, is_by_token: bool) -> bool:
    """False for clients without an identity, and for clients that logged in by a token: a token
    must not give another one.
    """
    return principal != ANONYMOUS and not is_by_token


def new_token(
    token_id: str,
    owners: tuple[Principal, Principal],
    renewers: tuple[Principal, ...],
    lifetimes: TokenLifetimes,
    *,
    wanted_ms: int,
    now_ms: int,
) -> DelegationToken:
    """A token of `owners` (owner, requester). `wanted_ms`: its lifetime; 0 or less means the
    longest.
    """
    lifetime_ms = min(wanted_ms, lifetimes.longest_ms) if wanted_ms > 0 else lifetimes.longest_ms
    ends_at_ms = min(now_ms + lifetime_ms, TIME_MS_MAX)
    return DelegationToken(
        token_id=token_id,
        owner=owners[0],
        requester=owners[1],
        renewers=renewers,
        issued_at_ms=now_ms,
        expires_at_ms=min(now_ms + lifetimes.renewal_ms, ends_at_ms),
        ends_at_ms=ends_at_ms,
    )


def renewed(
    token: DelegationToken | None, principal: Principal, lifetimes: TokenLifetimes, *, wanted_ms: int, now_ms: int
) -> DelegationToken | ErrorCode:
    """The renewed token, or the reason for refusing it. `wanted_ms`: time until its next expiry;
    negative means the usual time.
    """
    error = _refusal(token, principal, now_ms)
    if error is not None or token is None:
        return error or ErrorCode.delegation_token_not_found
    period_ms = wanted_ms if wanted_ms >= 0 else lifetimes.renewal_ms
    return token._replace(expires_at_ms=min(now_ms + period_ms, token.ends_at_ms))


def expired(
    token: DelegationToken | None, principal: Principal, *, wanted_ms: int, now_ms: int
) -> DelegationToken | ErrorCode | None:
    """The token with its new expiry, None if it ends now (`wanted_ms` is negative), or the reason
    for refusing.
    """
    error = _refusal(token, principal, now_ms)
    if wanted_ms < 0 and error in (None, ErrorCode.delegation_token_expired):
        return None
    if error is not None or token is None:
        return error or ErrorCode.delegation_token_not_found
    return token._replace(expires_at_ms=min(now_ms + wanted_ms, token.ends_at_ms))


def _refusal(token: DelegationToken | None, principal: Principal, now_ms: int) -> ErrorCode | None:
    if token is None:
        return ErrorCode.delegation_token_not_found
    if not token.belongs_to(principal):
        return ErrorCode.delegation_token_owner_mismatch
    return ErrorCode.delegation_token_expired if token.is_expired(now_ms) else None


def is_shown(
    token: DelegationToken,
    principal: Principal,
    owners: Collection[Principal] | None,
    may_describe: Callable[[DelegationToken], bool],
) -> bool:
    """True if a client may see the token: the client asks for it (`owners`, None: all), and it is
    the client's own or ACLs allow it.
    """
    if owners is not None and not any(token.belongs_to(owner) for owner in owners):
        return False
    return token.belongs_to(principal) or may_describe(token)
