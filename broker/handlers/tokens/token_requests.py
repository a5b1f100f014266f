"""The shared parts of the delegation token handlers: common refusals, and changes at the
controller.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, cast

from kio.schema.errors import ErrorCode
from kio.static.primitive import TZAware

from broker.authentication.core.token_rules import may_ask
from broker.authentication.delegation_tokens import DelegationTokens
from broker.metadata.request_context import RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.delegation_tokens import DelegationToken
from wire.znodes.token_znodes import token_message

NO_TIME: Final = 0
"""The timestamps of a refusal. Apache Kafka uses -1, which kio cannot decode."""


class TokenRequests:
    """The common checks and changes of requests about tokens."""

    def __init__(self, tokens: DelegationTokens, controller: ControllerClient) -> None:
        self._tokens = tokens
        self._controller = controller

    def refusal(self, context: RequestContext) -> ErrorCode:
        """The error for a client that may not ask about tokens here at all."""
        if not may_ask(context.principal, is_by_token=context.is_by_token):
            return ErrorCode.delegation_token_request_not_allowed
        return ErrorCode.none if self._tokens.is_enabled else ErrorCode.delegation_token_auth_disabled

    async def change(self, token_id: str, token: DelegationToken | None, *, is_new: bool = False) -> ErrorCode:
        """Have the controller store the token, or remove it (None); returns when the live brokers
        have received the change.
        """
        wanted = pb.DelegationTokenChange(token=token_message(token_id, token), is_new=is_new)
        try:
            reply = await self._controller.alter_delegation_tokens(pb.AlterDelegationTokensRequest(tokens=[wanted]))
        except ControllerUnavailable as error:
            return error.code
        return ErrorCode(reply.results[0].error_code)


def period_ms(period: timedelta) -> int:
    """A period of a request in ms."""
    return period // timedelta(milliseconds=1)


def timestamp(time_ms: int) -> TZAware:
    """A time in Unix ms as kio writes it; kio's own check would require whole seconds."""
    return cast("TZAware", datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms))
