"""The codecs of batches: gzip, snappy, lz4 and zstd, with a bound on the size that compressed bytes
open to.
"""

import struct
import zlib
from typing import Any, Final

import lz4.frame
import snappy
import zstandard

from wire.batches.record_batch import Compression
from wire.batches.varints import CONTINUES

DECOMPRESSED_BYTES_MAX: Final = 512 * 1024 * 1024
"""A batch that opens to more than this is refused: bounds what a few bytes can make of memory."""

# the framing of Java's snappy library, which Kafka's clients write
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_CHUNK_BYTES: Final = 1 << 20
_ZSTD_LEVEL: Final = 3
_INT32: Final = struct.Struct(">i")


class TooLarge(ValueError):
    """Compressed bytes that open to more than the reader allows."""


def compress(body: bytes, compression: Compression, level: int | None = None) -> bytes:
    """The records of a batch under its codec, at a level of that codec or at its default."""
    match compression:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, wbits=31)
            return packer.compress(body) + packer.flush()
        case Compression.SNAPPY:
            return bytes(snappy.compress(body))
        case Compression.LZ4:
            # Java's reader wants independent blocks.
            return bytes(lz4.frame.compress(body, compression_level=level or 0, block_linked=False))
        case Compression.ZSTD:
            return zstandard.compress(body, _ZSTD_LEVEL if level is None else level)


def decompress(body: bytes, codec: int, size_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The records of a batch without its codec; raises TooLarge, or that codec's own errors.

    The function uses at most `size_bytes_max` and one chunk of memory, whatever size the compressed
    bytes claim.
    """
    match Compression(codec):
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return _bounded(zlib.decompressobj(wbits=31), body, size_bytes_max)
        case Compression.SNAPPY:
            return _decompress_snappy(body, size_bytes_max)
        case Compression.LZ4:
            return _bounded(lz4.frame.LZ4FrameDecompressor(), body, size_bytes_max)
        case Compression.ZSTD:
            return _decompress_zstd(body, size_bytes_max)


def _bounded(opener: Any, body: bytes, size_bytes_max: int) -> bytes:
    opened: bytes = opener.decompress(body, size_bytes_max + 1)
    _check_size(len(opened), size_bytes_max)
    if not opener.eof:
        raise ValueError("the compressed bytes end too early")
    if opener.unused_data:
        raise ValueError(f"{len(opener.unused_data)} bytes after the compressed ones")
    return opened


def _decompress_zstd(body: bytes, size_bytes_max: int) -> bytes:
    # Frames from Kafka's clients often do not state their size: read as a stream.
    parts = []
    total = 0
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
        while part := stream.read(_CHUNK_BYTES):
            parts.append(part)
            total += len(part)
            _check_size(total, size_bytes_max)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(body: bytes, size_bytes_max: int) -> bytes:
    """Plain snappy, or the chunked form of Java's snappy library: a header of 16 bytes, then sized
    blocks.
    """
    if not body.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(body, size_bytes_max)
    parts = []
    at, total = _XERIAL_HEADER_SIZE, 0
    while at < len(body):
        if at + 4 > len(body):
            raise ValueError("a snappy block ends too early")
        (size,) = _INT32.unpack_from(body, at)
        at += 4
        if size < 0 or at + size > len(body):
            raise ValueError("a snappy block ends too early")
        parts.append(_decompress_snappy_block(body[at : at + size], size_bytes_max - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _decompress_snappy_block(block: bytes, size_bytes_max: int) -> bytes:
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < CONTINUES:
            break
    _check_size(claimed, size_bytes_max)
    return bytes(snappy.decompress(block))


def _check_size(size: int, size_bytes_max: int) -> None:
    if size > size_bytes_max:
        raise TooLarge(f"more than {size_bytes_max} bytes without compression")
