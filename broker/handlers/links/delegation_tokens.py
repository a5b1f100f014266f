"""DelegationTokens (private): the mirror of an exact link reads the delegation tokens of the active
site and writes them at the standby.

Behaviour: only with an authorizer and with the site's secret key, and for a principal with
ClusterAction. Written with Alter on the cluster; the controller makes the changes only at the
link's epoch and only while the site is the link's standby. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16
from msgspec import Struct

from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer
from broker.handlers.access.mirror_claims import unnamed_link_refusal
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.messages.delegation_token_messages import (
    DELEGATION_TOKENS,
    DelegationTokensResponse,
    DelegationTokenStored,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.rules.acls import Operation
from wire.znodes.documents import MalformedZnode
from wire.znodes.token_znodes import decode_token, encode_token, token_message

API_KEY = DELEGATION_TOKENS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[DELEGATION_TOKENS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    cluster: Cluster
    controller: ControllerClient
    delegation_tokens: DelegationTokens


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DelegationTokens request."""
    if not doors.authorizer.is_enabled:
        return _refusal(ErrorCode.security_disabled, "delegation tokens are shown only where there is an authorizer")
    if not doors.delegation_tokens.is_enabled:
        return _refusal(ErrorCode.delegation_token_auth_disabled, "the site has no delegation.token.secret.key")
    if request.tokens:
        error, message = await _write(doors, context, request)
        return _refusal(error, message) if error is not ErrorCode.none else _answer(doors)
    return _answer(
        doors,
        tuple(
            DelegationTokenStored(token_id=token_id, owner=str(token.owner), document=encode_token(token).decode())
            for token_id, token in sorted(doors.cluster.image.delegation_tokens.items())
        ),
    )


async def _write(doors: Doors, context: RequestContext, request: Any) -> tuple[ErrorCode, str | None]:
    if (unnamed := unnamed_link_refusal(request)) is not None:
        return unnamed
    if not doors.authorizer.may_cluster(context, Operation.ALTER):
        return ErrorCode.cluster_authorization_failed, f"{context.principal} has no Alter on the cluster"
    try:
        changes = [
            pb.DelegationTokenChange(
                token=token_message(
                    one.token_id, None if one.document is None else decode_token(one.token_id, one.document.encode())
                ),
                is_new=one.document is not None,
            )
            for one in request.tokens
        ]
    except MalformedZnode as malformed:
        return ErrorCode.invalid_request, str(malformed)
    try:
        reply = await doors.controller.alter_delegation_tokens(
            pb.AlterDelegationTokensRequest(tokens=changes, link=request.link, link_epoch=request.link_epoch)
        )
    except ControllerUnavailable as unavailable:
        return unavailable.code, str(unavailable)
    for one, result in zip(request.tokens, reply.results, strict=True):
        # a token that has expired at the standby need not be removed
        is_gone = one.document is None and result.error_code == ErrorCode.delegation_token_not_found
        if result.error_code and not is_gone:
            return ErrorCode(result.error_code), f"token {one.token_id}: {result.error_message}"
    return ErrorCode.none, None


def _answer(doors: Doors, tokens: tuple[DelegationTokenStored, ...] = ()) -> DelegationTokensResponse:
    return DelegationTokensResponse(
        error_code=ErrorCode.none,
        error_message=None,
        secret_check=i16(doors.delegation_tokens.secret_check),
        tokens=tokens,
    )


def _refusal(error: ErrorCode, message: str | None) -> DelegationTokensResponse:
    return DelegationTokensResponse(error_code=error, error_message=message, secret_check=i16(-1), tokens=())
