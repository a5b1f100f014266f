"""ClientTokenRequest (private): a broker of the standby hands a client's request about delegation
tokens on, and this broker of the active site answers it as if the client had asked here.

Behaviour: only with an authorizer, and for a principal with ClusterAction, which no mirror that is
limited to its links may use for it. The rights are those of the named client, and the audit log
names it. A site that follows another one itself refuses. Versions: 0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer
from broker.handlers.tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from broker.handlers.tokens.token_requests import TokenRequests
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.admin_audit import audit_request
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.followed_site import followed_site
from runtime.clock import Clock
from wire.protocol import schemas
from wire.protocol.byte_reader import Malformed
from wire.protocol.messages.delegation_token_messages import CLIENT_TOKEN_REQUEST, ClientTokenRequestResponse
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.rules.principals import Principal

API_KEY = CLIENT_TOKEN_REQUEST
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[CLIENT_TOKEN_REQUEST]

_Answer = Callable[[Any, RequestContext, Any], Awaitable[Any]]
_HANDLERS: Final[Mapping[int, tuple[ModuleType, _Answer]]] = {
    create_delegation_token.API_KEY: (create_delegation_token, create_delegation_token.answer),
    renew_delegation_token.API_KEY: (renew_delegation_token, renew_delegation_token.answer),
    expire_delegation_token.API_KEY: (expire_delegation_token, expire_delegation_token.answer),
    describe_delegation_token.API_KEY: (describe_delegation_token, describe_delegation_token.answer),
}


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses: those of the four handlers, and its own."""

    authorizer: Authorizer
    clock: Clock
    cluster: Cluster
    configs: DynamicConfigs
    delegation_tokens: DelegationTokens
    token_requests: TokenRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ClientTokenRequest request."""
    if not doors.authorizer.is_enabled:
        return _refusal(ErrorCode.security_disabled, "without an authorizer, no broker asks for a client of another")
    if (site := followed_site(doors.cluster.image)) is not None:
        return _refusal(ErrorCode.policy_violation, f"this site follows site {site} itself")
    module, answer = _HANDLERS.get(request.request_key, (None, None))
    version = request.request_version
    if module is None or answer is None or not module.MIN_VERSION <= version <= module.MAX_VERSION:
        return _refusal(ErrorCode.policy_violation, f"request {request.request_key} is none about tokens")
    try:
        asked = schemas.decode(schemas.request_type(request.request_key, version), request.request)
    except Malformed as error:
        return _refusal(ErrorCode.invalid_request, str(error))
    of_client = RequestContext(
        api_key=request.request_key,
        api_version=version,
        correlation_id=context.correlation_id,
        client_id=None,
        listener=context.listener,
        client_address=request.client_address,
        principal=Principal(request.principal_type, request.principal_name),
    )
    answered = await answer(asked, of_client, doors)
    audit_request(of_client, asked, answered)
    return ClientTokenRequestResponse(error_code=ErrorCode.none, error_message=None, response=schemas.encode(answered))


def _refusal(error: ErrorCode, message: str) -> ClientTokenRequestResponse:
    return ClientTokenRequestResponse(error_code=error, error_message=message, response=b"")
