"""SaslHandshake: the client names the mechanism by which it logs in.

Behaviour: a mechanism that is not offered is UNSUPPORTED_SASL_MECHANISM with those that are, and
the connection closes; a listener without SASL answers ILLEGAL_SASL_STATE without any, and a client
that is set up for SASL then says what is wrong. After version 0 the messages come without headers.
Versions: 0 and 1.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from broker.network.connection_owner import Frame
from broker.network.entities import builder
from broker.network.exchange import Exchange
from wire.protocol.streams.frames import decode_request_body

API_KEY = 17
MIN_VERSION = 0
MAX_VERSION = 1


def handle_frame(frame: Frame, exchange: Exchange, _doors: None) -> None:
    """Answer a SaslHandshake request."""
    build, session = builder(API_KEY, exchange.header.api_version), exchange.connection.sasl
    if session is None:
        exchange.reply(build.response(error_code=ErrorCode.illegal_sasl_state, mechanisms=()))
        return
    request = decode_request_body(frame, exchange.header)
    answer = session.handshake(request.mechanism, exchange.header.api_version)
    entity = build.response(error_code=answer.error, mechanisms=session.mechanisms)
    if answer.is_refused:
        session.refuse(answer, partial(exchange.reply, entity))
    else:
        exchange.reply(entity)
