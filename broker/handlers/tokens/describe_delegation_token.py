"""DescribeDelegationToken: the tokens of some owners, or all, with their HMACs.

Behaviour: from this broker's image. A client sees the tokens that it owns, requested or may renew,
those that it may Describe, and those of users whose tokens it may describe (DescribeTokens).
Versions: 1 to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.core.token_rules import is_shown
from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer, Check
from broker.handlers.tokens.token_requests import TokenRequests
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from wire.rules.acls import Operation, ResourceType
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal

API_KEY = 41
MIN_VERSION = 1
MAX_VERSION = 3


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    delegation_tokens: DelegationTokens
    token_requests: TokenRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeDelegationToken request, or hand it on."""
    followed = await doors.token_requests.ask_active_site(request, context)
    return followed or await answer(request, context, doors)


async def answer(request: Any, context: RequestContext, doors: Doors) -> Any:
    """The tokens of this site."""
    build, error = builder(API_KEY, context.api_version), doors.token_requests.refusal(context)
    if error is not ErrorCode.none:
        return build.response(error_code=error, tokens=())
    named = request.owners
    owners = None if named is None else {Principal(one.principal_type, one.principal_name) for one in named}

    def may_describe(token: DelegationToken) -> bool:
        checks = (
            Check(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id),
            Check(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)),
        )
        return doors.authorizer.is_enabled and any(
            doors.authorizer.may(context, check, is_logged=False) for check in checks
        )

    shown = (
        token
        for _, token in sorted(doors.delegation_tokens.tokens.items())
        if is_shown(token, context.principal, owners, may_describe)
    )
    return build.response(error_code=error, tokens=tuple(_part(doors, build, token) for token in shown))


def _part(doors: Doors, build: Any, token: DelegationToken) -> Any:
    return build.part(
        "DescribedDelegationToken",
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.ends_at_ms,
        token_id=token.token_id,
        hmac=doors.delegation_tokens.hmac_of(token.token_id),
        renewers=tuple(
            build.part("DescribedDelegationTokenRenewer", principal_type=one.type, principal_name=one.name)
            for one in token.renewers
        ),
    )
