"""The way into the application: each request gets its principal, and the Kafka user that acts for
it, or an error document.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.access.kafka_users import KafkaUser, KafkaUsers
from bridge.access.logins import HttpPrincipal, Logins
from bridge.core.refusals import Refused, unauthorized
from bridge.metrics import BridgeMetrics
from bridge.parts import refused_response
from runtime.security.audit import DENIED, audit

CALLER: Final = "antipode.caller"
OPEN_PATHS: Final = ("/health",)
"""Paths that need no login."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request and its Kafka user."""

    principal: HttpPrincipal
    user: KafkaUser


def caller_of(request: Request) -> Caller:
    """The caller of a request."""
    caller: Caller = request.scope[CALLER]
    return caller


class Gate:
    """Before the application."""

    def __init__(self, app: ASGIApp, logins: Logins, users: KafkaUsers, metrics: BridgeMetrics) -> None:
        self._app = app
        self._logins = logins
        self._users = users
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["path"] in OPEN_PATHS:
            scope[CALLER] = Caller(HttpPrincipal(""), self._users.own)
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._logins.principal_of(scope)
            async with self._users.acting_for(principal) as user:
                scope[CALLER] = Caller(principal, user)
                await self._app(scope, _until_expiry(receive, principal), send)
        except Refused as refused:
            if CALLER in scope:
                raise
            self._note(scope, refused)
            await refused_response(Request(scope), refused)(scope, receive, self._challenging(send, refused))

    def _note(self, scope: Scope, refused: Refused) -> None:
        self._metrics.record_refused_login(refused.status)
        if refused.status in (401, 403):
            client = scope.get("client")
            audit(
                operation=f"{scope['method']} {scope['path']}",
                principal="",
                address=client[0] if client else "",
                interface="http",
                outcome=DENIED,
                reason=refused.message,
            )

    def _challenging(self, send: Send, refused: Refused) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and refused.status == 401:
                headers = MutableHeaders(raw=message["headers"])
                for challenge in self._logins.challenges:
                    headers.append("www-authenticate", challenge)
            await send(message)

        return sending


def _until_expiry(receive: Receive, principal: HttpPrincipal) -> Receive:
    """Stop reading the body when the token of the request has expired."""
    expires_at_ms = principal.expires_at_ms
    if expires_at_ms is None:
        return receive

    async def receiving() -> Message:
        message = await receive()
        if message["type"] == "http.request" and message.get("body") and time.time() * 1000 >= expires_at_ms:
            raise unauthorized("the token has expired")
        return message

    return receiving
