"""SaslAuthenticate: one message of the mechanism that the client has chosen.

Behaviour: as `broker/authentication/core/sasl_login.py` decides. A refusal is sent after
`connection.failed.authentication.delay.ms`, with a reason that does not say which part of the login
was wrong; then the connection closes. The first login by a delegation token is answered when a
thread has derived the token's keys. The session's lifetime is that of `connections.max.reauth.ms`
or of a token. A listener without SASL answers ILLEGAL_SASL_STATE. Versions: 0 to 2.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from broker.authentication.core.sasl_login import Answer
from broker.authentication.sasl_session import SaslSession
from broker.network.connection_owner import Frame
from broker.network.entities import builder
from broker.network.exchange import Exchange
from wire.protocol.schemas import encode
from wire.protocol.streams.frames import decode_request_body

API_KEY = 36
MIN_VERSION = 0
MAX_VERSION = 2

_NO_SASL = Answer(
    ErrorCode.illegal_sasl_state, "this listener has no login: connect with security.protocol=PLAINTEXT or SSL"
)


def handle_frame(frame: Frame, exchange: Exchange, _doors: None) -> None:
    """Answer a SaslAuthenticate request."""
    session = exchange.connection.sasl
    if session is None:
        exchange.reply(_response(exchange.header.api_version, _NO_SASL))
        return
    message = bytes(decode_request_body(frame, exchange.header).auth_bytes)
    deriving = session.token_deriving(message)
    if deriving is None:
        _authenticate(session, message, exchange)
    else:
        exchange.defer(_authenticate_later(deriving, session, message, exchange))


async def _authenticate_later(
    deriving: Awaitable[None], session: SaslSession, message: bytes, exchange: Exchange
) -> None:
    await deriving
    _authenticate(session, message, exchange)


def _authenticate(session: SaslSession, message: bytes, exchange: Exchange) -> None:
    answer = session.authenticate(message)
    if answer.is_refused:
        session.refuse(answer, partial(_reply_refusal, exchange, answer))
    else:
        exchange.reply(_response(exchange.header.api_version, answer))


def _reply_refusal(exchange: Exchange, answer: Answer) -> None:
    body = _refusal_body(exchange.header.api_version, answer)
    exchange.count_errors([answer.error])
    exchange.reply_body([body], body_size=len(body))


# cached: those who try passwords at a rate get the same few answers, and others wait meanwhile
@lru_cache(maxsize=32)
def _refusal_body(version: int, answer: Answer) -> bytes:
    return encode(_response(version, answer))


def _response(version: int, answer: Answer) -> Any:
    return builder(API_KEY, version).response(
        error_code=answer.error,
        error_message=answer.reason or None,
        auth_bytes=answer.message,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=answer.session_ms)),
    )
