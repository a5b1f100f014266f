"""Numbers of records as the Kafka protocol writes them: zigzag varints of up to 64 bits.

`make setup` compiles this module (`runtime/compiled.py`) together with its callers, so that their
calls are plain calls of C. Callers: wire/batches/records.py, record_walks.py, record_columns.py.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

CONTINUES: Final = 0x80
"""A byte from this value on is not the last one of its number."""
INT32_SHIFT_MAX: Final = 28
"""The shift of the last byte of a varint of 32 bits."""
INT64_SHIFT_MAX: Final = 63
INT64_MAX: Final = 2**63 - 1
NULL_LENGTH: Final = 1
"""The encoded length -1."""
_AFTER_SHIFT: Final = 2**57 - 1
"""The bits of an unsigned number of 64 bits that a shift by seven leaves."""


def read_varint(body: bytes, at: i64, shift_max: i64) -> tuple[i64, i64]:
    """The signed number at `at`, and its end."""
    number: i64 = body[at]
    at += 1
    if number >= CONTINUES:
        number, at = longer_varint(body, at - 1, shift_max)
    return ((number >> 1) & INT64_MAX) ^ -(number & 1), at


def longer_varint(body: bytes, at: i64, shift_max: i64) -> tuple[i64, i64]:
    """The number at `at`, two bytes or more, before its zigzag is undone: twice the value, or odd
    where that is negative; and its end.
    """
    number: i64 = body[at] & 0x7F
    at += 1
    byte: i64 = body[at]
    if byte < CONTINUES:
        return number | byte << 7, at + 1
    return _after_two_bytes(body, at, shift_max, number)


def _after_two_bytes(body: bytes, at: i64, shift_max: i64, number: i64) -> tuple[i64, i64]:
    """The same for numbers of more than two bytes: the second byte is at `at`, and `number` is the
    value of the first one.
    """
    shift: i64 = 7
    while True:
        byte: i64 = body[at]
        if shift >= shift_max and (byte >= CONTINUES or (shift == INT64_SHIFT_MAX and byte > 1)):
            raise ValueError("a number has too many bytes")
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < CONTINUES:
            return number, at
        shift += 7


def write_varint(writer: BytesWriter, value: i64) -> None:
    """A zigzag varint of up to 64 bits."""
    number: i64 = (value << 1) ^ (value >> 63)
    while number & ~0x7F:
        writer.append(u8(number & 0x7F | CONTINUES))
        # the mask makes the shift a logical one, as the number may fill all 64 bits
        number = (number >> 7) & _AFTER_SHIFT
    writer.append(u8(number))


def varint_size(value: i64) -> i64:
    """The number of bytes that `write_varint` writes."""
    number: i64 = (value << 1) ^ (value >> 63)
    size: i64 = 1
    while number & ~0x7F:
        number = (number >> 7) & _AFTER_SHIFT
        size += 1
    return size
