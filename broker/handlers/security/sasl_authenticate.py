"""SaslAuthenticate: one message of the mechanism that the client has chosen.

Behaviour: as `broker/authentication/core/sasl_login.py` decides. A refusal is sent after
`connection.failed.authentication.delay.ms`, with a reason that does not say which part of the login
was wrong; then the connection closes. The session's lifetime is that of `connections.max.reauth.ms`
or of a token. A listener without SASL answers ILLEGAL_SASL_STATE. Versions: 0 to 2.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from broker.authentication.core.sasl_login import Answer
from broker.network.connection_owner import Frame
from broker.network.entities import builder
from broker.network.exchange import Exchange
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
        exchange.reply(_response(exchange, _NO_SASL))
        return
    answer = session.authenticate(bytes(decode_request_body(frame, exchange.header).auth_bytes))
    entity = _response(exchange, answer)
    if answer.is_refused:
        session.refuse(answer, partial(exchange.reply, entity))
    else:
        exchange.reply(entity)


def _response(exchange: Exchange, answer: Answer) -> Any:
    return builder(API_KEY, exchange.header.api_version).response(
        error_code=answer.error,
        error_message=answer.reason or None,
        auth_bytes=answer.message,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=answer.session_ms)),
    )
