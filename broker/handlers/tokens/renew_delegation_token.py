"""RenewDelegationToken: moves the expiry of the token that the client names by its HMAC.

Behaviour: for owner, requester and renewers, not beyond the end that the token was made with; an
expired token stays expired. Versions: 1 and 2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.authentication.core.token_rules import TokenLifetimes, renewed
from broker.handlers.tokens.token_requests import NO_TIME, change, period_ms, refusal, timestamp
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 39
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a RenewDelegationToken request."""
    expires_at_ms, error = NO_TIME, refusal(services, context)
    if error is ErrorCode.none:
        wanted = renewed(
            services.delegation_tokens.by_hmac(bytes(request.hmac)),
            context.principal,
            TokenLifetimes(services.config.token_lifetime_ms_max, services.config.token_expiry_ms),
            wanted_ms=period_ms(request.renew_period),
            now_ms=services.clock.now_ms(),
        )
        if isinstance(wanted, ErrorCode):
            error = wanted
        else:
            error = await change(services, wanted.token_id, wanted)
            expires_at_ms = wanted.expires_at_ms if error is ErrorCode.none else NO_TIME
    response = builder(API_KEY, context.api_version).response
    return response(error_code=error, expiry_timestamp=timestamp(expires_at_ms))
