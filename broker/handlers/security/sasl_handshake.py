"""SaslHandshake: the client names the mechanism by which it logs in.

Behaviour: a mechanism that is not offered gets UNSUPPORTED_SASL_MECHANISM with the list of offered
ones, and the connection closes. A listener without SASL answers ILLEGAL_SASL_STATE with an empty
list, so that a client that is configured for SASL reports the problem. After version 0 the messages
come without headers. Versions: 0 and 1.
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
