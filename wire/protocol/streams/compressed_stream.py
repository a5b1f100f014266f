"""The bytes of a connection whose two ends agreed on compression (CompressConnection,
wire/protocol/messages/private.py): chunks, each compressed alone.

    chunk    stored_bytes:int32 plain_bytes:int32 stored (big-endian; stored is plain where both are
             equal)

Frames are unchanged inside and may cross chunks, so what arrives is byte for byte what was sent. A
chunk is a zstd frame (RFC 8878) of at most 256 KiB of plain bytes: large enough for most of the
gain, small enough that a broker's loop is held for about a millisecond, and bounded in what it may
become, so that hostile bytes cost the sender's connection and nothing more.

Used by wire/client/connection.py and broker/network/channels.py.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import zstandard

from wire.protocol.byte_reader import Buffer, Malformed
from wire.protocol.streams.frame_stream import FrameStream

PLAIN_BYTES_MAX: Final = 256 * 1024
LEVEL_MIN: Final = 1
LEVEL_MAX: Final = 19
WORTH_COMPRESSING_BYTES: Final = 128
RECEIVE_BYTES: Final = 128 * 1024

_HEADER: Final = struct.Struct(">II")


@dataclass(slots=True)
class CompressionTally:
    """The savings of the connections of one end, both directions together."""

    plain_bytes: int = 0
    wire_bytes: int = 0
    refusals: int = 0
    """Connections that are not compressed, because the broker does not offer compression."""

    def add(self, *, plain_bytes: int, wire_bytes: int) -> None:
        """Count what was sent or received."""
        self.plain_bytes += plain_bytes
        self.wire_bytes += wire_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """A request for compressed connections; connections to brokers that do not offer compression
    are not compressed.
    """

    level: int
    tally: CompressionTally = field(default_factory=CompressionTally)
    on_refused: Callable[[str], None] | None = None
    """Called with the address of each broker that does not offer it."""


class ChunkPacker:
    """Makes chunks of plain bytes."""

    def __init__(self, level: int) -> None:
        self._compressor = zstandard.ZstdCompressor(level=level)

    def pack(self, plain: Buffer) -> list[Buffer]:
        """The chunks, ready to be sent one after the other."""
        view = memoryview(plain)
        packed: list[Buffer] = []
        for begin in range(0, len(view), PLAIN_BYTES_MAX):
            piece = view[begin : begin + PLAIN_BYTES_MAX]
            stored: Buffer = piece
            if len(piece) >= WORTH_COMPRESSING_BYTES:
                compressed = self._compressor.compress(piece)
                # bytes that do not shrink are sent as they are: the receiver recognises this by the
                # two sizes
                if len(compressed) < len(piece):
                    stored = compressed
            packed += [_HEADER.pack(len(stored), len(piece)), stored]
        return packed


class ChunkUnpacker:
    """Makes plain bytes of chunks that arrive in pieces."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor()
        self._held = bytearray()

    def unpack(self, received: Buffer) -> Iterator[bytes]:
        """Plain bytes of the chunks that are whole now. Raises Malformed; nothing can be made of
        the stream then.
        """
        held = self._held
        held += received  # copied once, no matter how small the pieces in which the chunk arrives
        position = 0
        try:
            while len(held) - position >= _HEADER.size:
                stored_bytes, plain_bytes = _HEADER.unpack_from(held, position)
                if not 0 < stored_bytes <= plain_bytes <= PLAIN_BYTES_MAX:
                    raise Malformed(f"a chunk of {stored_bytes} bytes for {plain_bytes}")
                begin = position + _HEADER.size
                end = begin + stored_bytes
                if end > len(held):
                    break
                with memoryview(held)[begin:end] as stored:
                    plain = self._plain(stored, plain_bytes)
                yield plain
                position = end
        # also after Malformed: the same bytes must not be read again
        finally:
            del held[:position]

    def _plain(self, stored: memoryview, plain_bytes: int) -> bytes:
        if len(stored) == plain_bytes:
            return bytes(stored)
        try:
            # looked at first: a frame that claims gigabytes must not get as far as the decompressor
            promised = zstandard.get_frame_parameters(stored).content_size
            if promised != plain_bytes:
                raise Malformed(f"a chunk for {plain_bytes} bytes whose header states {promised}")
            plain: bytes = self._decompressor.decompress(stored, max_output_size=plain_bytes, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise Malformed(f"a chunk that zstd cannot read: {error}") from error
        return plain


class CompressedStream(asyncio.BufferedProtocol):
    """Is put between a transport and its FrameStream, from the answer to CompressConnection on."""

    def __init__(self, frames: FrameStream, compression: Compression) -> None:
        self._frames = frames
        self._tally = compression.tally
        self._packer = ChunkPacker(compression.level)
        self._unpacker = ChunkUnpacker()
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        # frames now come in chunks: the stream's own buffer must not be received into
        frames.receive_by_feed()
        frames.transport.set_protocol(self)

    def write(self, parts: Sequence[Buffer]) -> None:
        """Send the parts in as few chunks as may be."""
        plain = b"".join(parts)
        packed = self._packer.pack(plain)
        self._tally.add(plain_bytes=len(plain), wire_bytes=sum(len(part) for part in packed))
        self._frames.transport.writelines(packed)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self._frames.connection_lost(exc)

    def pause_writing(self) -> None:
        """asyncio: the send buffer is full."""
        self._frames.pause_writing()

    def resume_writing(self) -> None:
        """asyncio: the send buffer has room again."""
        self._frames.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """asyncio: where to receive to."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: bytes have arrived there."""
        plain_bytes = 0
        try:
            for plain in self._unpacker.unpack(self._received[:nbytes]):
                plain_bytes += len(plain)
                self._frames.feed(plain)
        except Malformed as error:
            # the error first: requests that wait get it as their reason
            self._frames.connection_lost(error)
            self._frames.transport.abort()
        self._tally.add(plain_bytes=plain_bytes, wire_bytes=nbytes)
