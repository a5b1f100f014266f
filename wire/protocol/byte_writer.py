"""Protocol primitives as bytes: the base of the hand-written encoders, which join them or pass them
on as parts.

Less than the 30 s of a connection: a broker that waits so long for a deletion still reports the
cause of the wait.
"""

import struct
from typing import Final
from uuid import UUID

_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack
_SMALL_UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
_ZERO_UUID: Final = bytes(16)

NO_TAGS: Final = b"\0"


def uvarint_bytes(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return _SMALL_UVARINTS[value]
    parts = bytearray()
    while value > 127:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def string_bytes(text: str | None, *, flexible: bool) -> bytes:
    """Text, or null for None. struct.error when it is too long for the older form (32,767
    bytes).
    """
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (uvarint_bytes(len(encoded) + 1) if flexible else _INT16(len(encoded))) + encoded


def count_bytes(count: int | None, *, flexible: bool) -> bytes:
    """Length of an array, or null for None; also the length in front of a blob, which has the same
    form.
    """
    if count is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    return uvarint_bytes(count + 1) if flexible else _INT32(count)


def uuid_bytes(value: UUID | None) -> bytes:
    """A UUID; None is zero."""
    return _ZERO_UUID if value is None else value.bytes


def tag_section(*fields: tuple[int, bytes]) -> bytes:
    """Tagged fields, which must come in the order of their tags."""
    if not fields:
        return NO_TAGS
    parts = [uvarint_bytes(len(fields))]
    for tag, value in fields:
        parts += (uvarint_bytes(tag), uvarint_bytes(len(value)), value)
    return b"".join(parts)
