"""CreateDelegationToken: a token by which its holder logs in as the owner.

Behaviour: a token of the client itself, or of another owner with the right CreateTokens on that
user (KIP-373). Clients without an identity, and those that have logged in by a token, get none. The
controller stores it without its HMAC; the answer is sent when the live brokers have received it.
Versions: 1 to 3.
"""

from __future__ import annotations

import base64
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.core.token_rules import TokenLifetimes, new_token
from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer, Check
from broker.handlers.tokens.token_requests import NO_TIME, TokenRequests, period_ms, timestamp
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.chance import new_uuid
from runtime.clock import Clock
from wire.rules.acls import Operation, ResourceType
from wire.rules.principals import USER, Principal

API_KEY = 38
MIN_VERSION = 1
MAX_VERSION = 3


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    clock: Clock
    configs: DynamicConfigs
    delegation_tokens: DelegationTokens
    token_requests: TokenRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a CreateDelegationToken request, or hand it on."""
    followed = await doors.token_requests.ask_active_site(request, context)
    return followed or await answer(request, context, doors)


async def answer(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Make a token of this site."""
    requester = context.principal
    named = getattr(request, "owner_principal_type", None), getattr(request, "owner_principal_name", None)
    owner = Principal(named[0], named[1]) if named[0] and named[1] else requester
    error = _refusal(doors, context, owner, request)
    token = new_token(
        base64.urlsafe_b64encode(new_uuid().bytes).decode().rstrip("="),
        (owner, requester),
        tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers),
        TokenLifetimes(doors.configs.current.token_lifetime_ms_max, doors.configs.current.token_expiry_ms),
        wanted_ms=period_ms(request.max_lifetime),
        now_ms=doors.clock.now_ms(),
    )
    if error is ErrorCode.none:
        error = await doors.token_requests.change(token.token_id, token, is_new=True)
    is_made = error is ErrorCode.none
    return builder(API_KEY, context.api_version).response(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=timestamp(token.issued_at_ms if is_made else NO_TIME),
        expiry_timestamp=timestamp(token.expires_at_ms if is_made else NO_TIME),
        max_timestamp=timestamp(token.ends_at_ms if is_made else NO_TIME),
        token_id=token.token_id if is_made else "",
        hmac=doors.delegation_tokens.hmac_of(token.token_id) if is_made else b"",
    )


def _refusal(doors: Doors, context: RequestContext, owner: Principal, request: Any) -> ErrorCode:
    error = doors.token_requests.refusal(context)
    if error is not ErrorCode.none:
        return error
    is_own = owner == context.principal
    if not is_own and not doors.authorizer.may(context, Check(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))):
        return ErrorCode.delegation_token_authorization_failed
    # the owner of a token is always a user
    if owner.type != USER or any(one.principal_type != USER for one in request.renewers):
        return ErrorCode.invalid_principal_type
    return ErrorCode.none
