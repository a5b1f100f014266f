"""Compressed chunks: packed bytes are restored for any boundaries of the pieces; other bytes are
refused within bounds.
"""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wire.protocol.byte_reader import Malformed
from wire.protocol.streams.compressed_stream import PLAIN_BYTES_MAX, ChunkPacker, ChunkUnpacker

PLAIN = st.one_of(
    st.binary(max_size=2_000),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=40), st.integers(1, 20_000)),
)


@given(plains=st.lists(PLAIN, max_size=5), cuts=st.lists(st.integers(1, 5_000), max_size=20), level=st.integers(1, 5))
def test_packed_bytes_come_out_the_same_for_every_cut(plains: list[bytes], cuts: list[int], level: int) -> None:
    packer, unpacker = ChunkPacker(level), ChunkUnpacker()
    wire = b"".join(bytes(part) for plain in plains for part in packer.pack(plain))
    out = b""
    for cut in cuts:
        out += b"".join(unpacker.unpack(wire[:cut]))
        wire = wire[cut:]
    out += b"".join(unpacker.unpack(wire))
    assert out == b"".join(plains)


def test_a_chunk_is_not_copied_again_for_each_piece_of_it() -> None:
    """A line that brings little at a time would cost more the larger the chunk."""
    plain = random.Random(1).randbytes(PLAIN_BYTES_MAX)
    wire = b"".join(bytes(part) for part in ChunkPacker(1).pack(plain))
    unpacker, out, copies = ChunkUnpacker(), b"", 0
    tracemalloc.start()
    try:
        for begin in range(0, len(wire), 100):
            tracemalloc.reset_peak()
            before_bytes, _ = tracemalloc.get_traced_memory()
            out += b"".join(unpacker.unpack(wire[begin : begin + 100]))
            copies += tracemalloc.get_traced_memory()[1] - before_bytes > 50_000
    finally:
        tracemalloc.stop()
    assert out == plain
    assert copies < 50


@given(plain=PLAIN, damage=st.integers(0, 200), position=st.floats(0, 1, exclude_max=True))
def test_damaged_bytes_never_become_more_than_a_chunk_each(plain: bytes, damage: int, position: float) -> None:
    wire = bytearray(b"".join(bytes(part) for part in ChunkPacker(3).pack(plain)))
    if wire:
        wire[int(position * len(wire))] ^= damage
    try:
        for chunk in ChunkUnpacker().unpack(wire):
            assert len(chunk) <= PLAIN_BYTES_MAX
    except Malformed:
        pass


def test_repetitive_bytes_become_few() -> None:
    packed = ChunkPacker(3).pack(b"an order of 12 pieces; " * 40_000)
    assert sum(len(part) for part in packed) < 10_000


@pytest.mark.parametrize(
    ("stored", "plain_bytes"),
    [
        (b"x" * 9, 8),
        (b"", 0),
        (b"not zstd", 100),
        (zstandard.ZstdCompressor().compress(bytes(1000)), 999),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000)), 1000),
        (zstandard.ZstdCompressor().compress(bytes(4 * PLAIN_BYTES_MAX)), PLAIN_BYTES_MAX),
    ],
    ids=["larger than plain", "empty", "not zstd", "says another size", "says no size", "a bomb"],
)
def test_malformed_chunks_are_refused(stored: bytes, plain_bytes: int) -> None:
    with pytest.raises(Malformed):
        list(ChunkUnpacker().unpack(struct.pack(">II", len(stored), plain_bytes) + stored))
