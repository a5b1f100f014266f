"""RenewDelegationToken: moves the expiry of the token that the client names by its HMAC.

Behaviour: allowed for owner, requester and renewers, up to the end that the token was created with;
an expired token stays expired. Versions: 1 and 2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.core.token_rules import TokenLifetimes, renewed
from broker.authentication.delegation_tokens import DelegationTokens
from broker.handlers.tokens.token_requests import NO_TIME, TokenRequests, period_ms, timestamp
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.clock import Clock

API_KEY = 39
MIN_VERSION = 1
MAX_VERSION = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    configs: DynamicConfigs
    delegation_tokens: DelegationTokens
    token_requests: TokenRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a RenewDelegationToken request, or hand it on."""
    followed = await doors.token_requests.ask_active_site(request, context)
    return followed or await answer(request, context, doors)


async def answer(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Renew a token of this site."""
    expires_at_ms, error = NO_TIME, doors.token_requests.refusal(context)
    if error is ErrorCode.none:
        wanted = renewed(
            doors.delegation_tokens.by_hmac(bytes(request.hmac)),
            context.principal,
            TokenLifetimes(doors.configs.current.token_lifetime_ms_max, doors.configs.current.token_expiry_ms),
            wanted_ms=period_ms(request.renew_period),
            now_ms=doors.clock.now_ms(),
        )
        if isinstance(wanted, ErrorCode):
            error = wanted
        else:
            error = await doors.token_requests.change(wanted.token_id, wanted)
            expires_at_ms = wanted.expires_at_ms if error is ErrorCode.none else NO_TIME
    response = builder(API_KEY, context.api_version).response
    return response(error_code=error, expiry_timestamp=timestamp(expires_at_ms))
