"""SaslHandshake: the client names the mechanism by which it logs in.

Behaviour: a mechanism that is not offered gets UNSUPPORTED_SASL_MECHANISM with the list of offered
ones, and the connection closes. A listener without SASL answers ILLEGAL_SASL_STATE with an empty
list, so that a client that is configured for SASL reports the problem. After version 0 the messages
come without headers. Versions: 0 and 1.
"""

from __future__ import annotations

from functools import lru_cache, partial

from kio.schema.errors import ErrorCode

from broker.network.connection_owner import Frame
from broker.network.entities import builder
from broker.network.exchange import Exchange
from wire.protocol.schemas import encode
from wire.protocol.streams.frames import decode_request_body

API_KEY = 17
MIN_VERSION = 0
MAX_VERSION = 1


def handle_frame(frame: Frame, exchange: Exchange, _doors: None) -> None:
    """Answer a SaslHandshake request."""
    session = exchange.connection.sasl
    if session is None:
        _reply(exchange, ErrorCode.illegal_sasl_state, ())
        return
    request = decode_request_body(frame, exchange.header)
    answer = session.handshake(request.mechanism, exchange.header.api_version)
    if answer.is_refused:
        session.refuse(answer, partial(_reply, exchange, answer.error, session.mechanisms))
    else:
        _reply(exchange, answer.error, session.mechanisms)


def _reply(exchange: Exchange, error: ErrorCode, mechanisms: tuple[str, ...]) -> None:
    body = _body(exchange.header.api_version, error, mechanisms)
    exchange.count_errors([error])
    exchange.reply_body([body], body_size=len(body))


# cached: a listener has a few answers; to encode one takes 11 us, for which others wait in a storm
# of logins
@lru_cache(maxsize=32)
def _body(version: int, error: ErrorCode, mechanisms: tuple[str, ...]) -> bytes:
    return encode(builder(API_KEY, version).response(error_code=error, mechanisms=mechanisms))
