"""ExpireDelegationToken: sets when the token that the client names by its HMAC expires, or removes
it.

Behaviour: allowed for owner, requester and renewers. A negative period removes the token at once;
later logins by it fail, and connections that have logged in by it continue until their session
ends. Versions: 1 and 2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.core.token_rules import expired
from broker.authentication.delegation_tokens import DelegationTokens
from broker.handlers.tokens.token_requests import NO_TIME, TokenRequests, period_ms, timestamp
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from runtime.clock import Clock

API_KEY = 40
MIN_VERSION = 1
MAX_VERSION = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    delegation_tokens: DelegationTokens
    token_requests: TokenRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an ExpireDelegationToken request, or hand it on."""
    followed = await doors.token_requests.ask_active_site(request, context)
    return followed or await answer(request, context, doors)


async def answer(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Set the expiry of a token of this site, or remove it."""
    expires_at_ms, error = NO_TIME, doors.token_requests.refusal(context)
    if error is ErrorCode.none:
        now_ms = doors.clock.now_ms()
        token = doors.delegation_tokens.by_hmac(bytes(request.hmac))
        wanted = expired(token, context.principal, wanted_ms=period_ms(request.expiry_time_period), now_ms=now_ms)
        if isinstance(wanted, ErrorCode) or token is None:
            error = wanted if isinstance(wanted, ErrorCode) else ErrorCode.delegation_token_not_found
        else:
            error = await doors.token_requests.change(token.token_id, wanted)
            expires_at_ms = now_ms if wanted is None else wanted.expires_at_ms
    response = builder(API_KEY, context.api_version).response
    return response(error_code=error, expiry_timestamp=timestamp(expires_at_ms if error is ErrorCode.none else NO_TIME))
