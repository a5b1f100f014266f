"""The shared parts of the delegation token handlers: common refusals, changes at the controller,
and requests that a standby hands on to the active site, whose tokens the mirror carries
(`broker/site/followed_site.py`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from kio.schema.errors import ErrorCode
from kio.static.primitive import TZAware

from broker.authentication.core.token_rules import may_ask
from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer
from broker.metadata.request_context import RequestContext
from broker.network.error_responses import error_response
from broker.site.active_site import ActiveSite
from broker.site.followed_site import followed_by
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.delegation_tokens import DelegationToken
from wire.znodes.token_znodes import token_message

DESCRIBE: Final = 41
NO_TIME: Final = 0
"""The timestamps of a refusal. Apache Kafka uses -1, which kio cannot decode."""


class TokenRequests:
    """The common checks and changes of requests about tokens."""

    def __init__(
        self, tokens: DelegationTokens, controller: ControllerClient, active_site: ActiveSite, authorizer: Authorizer
    ) -> None:
        self._tokens = tokens
        self._controller = controller
        self._active_site = active_site
        self._authorizer = authorizer

    async def ask_active_site(self, request: Any, context: RequestContext) -> Any | None:
        """The answer to a client of the standby: the active site's, or REQUEST_TIMED_OUT for a
        change that this site does not answer. None: this broker answers from its own tokens.

        Without an authorizer no tokens are carried, so each site answers about its own.
        """
        image = self._authorizer.image
        site = followed_by(image, context)
        if site is None or not self._authorizer.is_enabled or self.refusal(context) is not ErrorCode.none:
            return None
        answer = await self._active_site.ask_about_tokens(image, site, context, request)
        if answer is not None or context.api_key == DESCRIBE:
            return answer
        # the active site may have made the change; the answer has no text, and clients ask again
        return error_response(context.api_key, context.api_version, request, error=ErrorCode.request_timed_out)

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
        code = ErrorCode(reply.results[0].error_code)
        # the site is fenced for a move of some hundred ms: clients ask again after this error
        return ErrorCode.request_timed_out if code is ErrorCode.policy_violation else code


def period_ms(period: timedelta) -> int:
    """A period of a request in ms."""
    return period // timedelta(milliseconds=1)


def timestamp(time_ms: int) -> TZAware:
    """A time in Unix ms as kio writes it; kio's own check would require whole seconds."""
    return cast("TZAware", datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms))
