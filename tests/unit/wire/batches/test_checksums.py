"""The CRC-32C of bytes that get another beginning."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from wire.batches.checksums import crc_with_beginning

BEGINNINGS = st.integers(0, 50).flatmap(
    lambda size: st.tuples(st.binary(min_size=size, max_size=size), st.binary(min_size=size, max_size=size))
)


@given(beginnings=BEGINNINGS, rest=st.binary(max_size=300), damage=st.integers(0, 2**32 - 1))
def test_the_crc_follows_the_beginning_and_keeps_its_error(
    beginnings: tuple[bytes, bytes], rest: bytes, damage: int
) -> None:
    old, new = beginnings
    changed = crc_with_beginning(crc32c(old + rest) ^ damage, old, new, len(rest))
    assert changed == crc32c(new + rest) ^ damage


@pytest.mark.parametrize("size", [2**16 - 1, 2**20, 3_000_001])
def test_the_rest_may_be_large(size: int) -> None:
    rest = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert crc_with_beginning(crc32c(b"old" + rest), b"old", b"new", size) == crc32c(b"new" + rest)


def test_beginnings_have_one_length() -> None:
    with pytest.raises(ValueError, match="a beginning of 2 bytes in place of 3"):
        crc_with_beginning(0, b"old", b"ne", 1)
