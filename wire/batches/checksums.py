"""Changes the CRC-32C of bytes whose beginning changes, without a look at the rest of them.

A CRC is linear over GF(2): the CRCs of A + B and of A' + B, where A and A' have one length, differ
by the difference of the CRCs of A and A', times x to the power of the number of bits of B, modulo
the polynomial (as in zlib's `crc32_combine`). So a batch gets another header in less than a
microsecond, however large it is. A CRC that does not fit its bytes does not fit afterwards either,
by the same difference: the next reader that verifies it still sees the damage.

`make setup` compiles this module (`runtime/compiled.py`). Called by `wire/batches/record_batch.py`.
"""

from typing import Final

from crc32c import crc32c
from mypy_extensions import i64

_X8: Final = 1 << 23
"""x^8. The bits of a polynomial are in the reflected order of CRC-32C: bit 31 is that of x^0."""


def _product(first: i64, second: i64) -> i64:
    """The product of two polynomials, modulo that of CRC-32C."""
    product: i64 = 0
    while first:
        if first & 0x80000000:
            product ^= second
        first = (first << 1) & 0xFFFFFFFF
        # times x: what leaves at x^31 comes back as the polynomial
        second = (second >> 1) ^ 0x82F63B78 if second & 1 else second >> 1
    return product


def _powers() -> list[int]:
    """x to the power of 8, 16, 32 and so on: the factors of any number of bytes below 2^31."""
    powers = [_X8]
    for _ in range(30):
        powers.append(_product(powers[-1], powers[-1]))
    return powers


_POWERS: Final = _powers()


def crc_with_beginning(crc: int, old: bytes, new: bytes, rest_bytes: int) -> int:
    """The CRC-32C of `new` and the bytes that follow, from `crc`, which is that of `old` and the
    same bytes; `rest_bytes` is their number. Raises ValueError if `old` and `new` differ in length.
    """
    if len(old) != len(new):
        raise ValueError(f"a beginning of {len(new)} bytes in place of {len(old)}")
    difference: i64 = crc32c(old) ^ crc32c(new)
    left: i64 = rest_bytes
    bit = 0
    while left:
        if left & 1:
            difference = _product(_POWERS[bit], difference)
        left >>= 1
        bit += 1
    return crc ^ difference
