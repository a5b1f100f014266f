"""Opening one batch: its records as offsets, timestamps, keys and raw bytes.

Only two jobs of the log look into a batch: the last step of a lookup by time, and compaction. Everything else moves batches
closed. Decompression is bounded, so that a small hostile batch cannot fill the memory.

Callers: broker/log/timestamps.py, broker/log/cleaner.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import lz4.frame
import snappy
import zstandard

from wire.record_batch import HEADER_SIZE, BatchHeader, Compression, InvalidBatch

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
_GZIP_WINDOW: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16


class WalkedRecord(NamedTuple):
    """One record; `raw` is its encoding without the leading length, as it stands in the batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    has_value: bool
    raw: bytes


def walk_records(batch: bytes, header: BatchHeader) -> Iterator[WalkedRecord]:
    """The records of a data batch; raises InvalidBatch when they do not decode."""
    try:
        content = decompress(header.compression, batch[HEADER_SIZE : header.size_bytes])
        at = 0
        for _ in range(header.record_count):
            length, start = _varint(content, at)
            at = start + length
            if length < 0 or at > len(content):
                raise InvalidBatch("a record is longer than its batch", 0)
            yield _record(header, content[start:at])
    except (IndexError, ValueError, EOFError, RuntimeError, zlib.error, zstandard.ZstdError) as error:
        if isinstance(error, InvalidBatch):
            raise
        raise InvalidBatch(f"the records of batch {header.base_offset} do not decode: {error}", 0) from error


def _record(header: BatchHeader, raw: bytes) -> WalkedRecord:
    timestamp_delta, at = _varint(raw, 1)
    offset_delta, at = _varint(raw, at)
    key_length, at = _varint(raw, at)
    key = None if key_length < 0 else raw[at : at + key_length]
    value_length, _ = _varint(raw, at + max(key_length, 0))
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return WalkedRecord(header.base_offset + offset_delta, timestamp, key, value_length >= 0, raw)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has too many bytes")


def decompress(codec: int, content: bytes) -> bytes:
    """The records section of a batch without its compression."""
    match codec:
        case Compression.NONE:
            return content
        case Compression.GZIP:
            inflater = zlib.decompressobj(_GZIP_WINDOW)
            return _bounded(inflater.decompress(content, DECOMPRESSED_BYTES_MAX), is_whole=inflater.eof)
        case Compression.SNAPPY:
            return _snappy(content)
        case Compression.LZ4:
            opened = lz4.frame.LZ4FrameDecompressor()
            return _bounded(opened.decompress(content, max_length=DECOMPRESSED_BYTES_MAX), is_whole=opened.eof)
        case Compression.ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(content) as reader:
                return _bounded(reader.read(DECOMPRESSED_BYTES_MAX), is_whole=not reader.read(1))
        case _:
            raise ValueError(f"unknown compression codec {codec}")


def _bounded(content: bytes, *, is_whole: bool) -> bytes:
    if not is_whole:
        raise ValueError(f"cut off, or more than {DECOMPRESSED_BYTES_MAX} bytes once decompressed")
    return content


def _snappy(content: bytes) -> bytes:
    if not content.startswith(_XERIAL_MAGIC):
        return bytes(snappy.uncompress(content))
    blocks, at = [], _XERIAL_HEADER
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        blocks.append(bytes(snappy.uncompress(content[at + 4 : at + 4 + length])))
        at += 4 + length
    return b"".join(blocks)
