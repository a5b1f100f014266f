"""CompressConnection (private): after the answer, this connection is compressed in both directions.

Behaviour: for links over a narrow connection; the bytes of batches arrive unchanged. The broker
reads files for such a connection instead of handing them to the kernel, and compresses on its loop
a chunk at a time. Versions: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from wire.protocol.messages.private import CODEC_ZSTD, COMPRESS_CONNECTION, PRIVATE_VERSIONS, CompressConnectionResponse
from wire.protocol.streams.compressed_stream import LEVEL_MAX, LEVEL_MIN
from wire.protocol.streams.frames import decode_request_body

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = COMPRESS_CONNECTION
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[COMPRESS_CONNECTION]


def handle_frame(frame: Frame, exchange: Exchange, _doors: None) -> None:
    """Answer, then compress: at once, so that nothing is sent between the answer and the first
    chunk.
    """
    request = decode_request_body(frame, exchange.header)
    error = _refusal(request.codec, request.level)
    exchange.reply(CompressConnectionResponse(error_code=error))
    if error is ErrorCode.none:
        exchange.connection.compress(request.level)


def _refusal(codec: int, level: int) -> ErrorCode:
    if codec != CODEC_ZSTD:
        return ErrorCode.unsupported_compression_type
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        return ErrorCode.invalid_request
    return ErrorCode.none
