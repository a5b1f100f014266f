"""Reads protocol primitives from a buffer without copying blobs: the base of the hand-written
parsers.

Strict: a read past the end, a negative length other than null's -1, or a count that the bytes left
cannot hold raises Malformed. Byte strings are memoryview slices of the given buffer, and keep it
alive.

Not for cold messages: those are decoded by kio (wire/protocol/schemas.py).
"""

import struct
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

Buffer = bytes | bytearray | memoryview

_INT16: Final = struct.Struct(">h").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from
_INT64: Final = struct.Struct(">q").unpack_from
_LENGTH_MAX: Final = 2**31 - 1
_ZERO_UUID: Final = bytes(16)


class Malformed(ValueError):
    """Bytes that contradict the schema; the message names the contradiction."""


class ByteReader:
    """A position in a buffer; each method reads one value there and advances."""

    __slots__ = ("end", "position", "view")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.view = memoryview(buffer)
        self.position = position
        self.end = len(buffer)

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        start = self.position
        stop = start + size
        if size < 0 or stop > self.end:
            raise Malformed(f"{size} bytes claimed, {self.end - start} left")
        self.position = stop
        return self.view[start:stop]

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        self.position += size
        if size < 0 or self.position > self.end:
            raise Malformed("message ends too early")

    def int8(self) -> int:
        """A signed byte."""
        position = self.position
        if position >= self.end:
            raise Malformed("message ends too early")
        self.position = position + 1
        value = self.view[position]
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        """A signed 16-bit integer."""
        position = self.position
        if position + 2 > self.end:
            raise Malformed("message ends too early")
        self.position = position + 2
        value: int = _INT16(self.view, position)[0]
        return value

    def int32(self) -> int:
        """A signed 32-bit integer."""
        position = self.position
        if position + 4 > self.end:
            raise Malformed("message ends too early")
        self.position = position + 4
        value: int = _INT32(self.view, position)[0]
        return value

    def int64(self) -> int:
        """A signed 64-bit integer."""
        position = self.position
        if position + 8 > self.end:
            raise Malformed("message ends too early")
        self.position = position + 8
        value: int = _INT64(self.view, position)[0]
        return value

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Several values of fixed sizes at once."""
        position = self.position
        if position + layout.size > self.end:
            raise Malformed("message ends too early")
        self.position = position + layout.size
        return layout.unpack_from(self.view, position)

    def nullable_uuid(self) -> UUID | None:
        """Sixteen bytes of a UUID; None is encoded as zero."""
        raw = bytes(self.take(16))
        return None if raw == _ZERO_UUID else UUID(bytes=raw)

    def uvarint(self) -> int:
        """An unsigned varint below 2^31."""
        value = shift = 0
        position = self.position
        # nearly all lengths are below 128: no loop for them
        if position < self.end and (byte := self.view[position]) < 128:
            self.position = position + 1
            return byte
        while True:
            if position >= self.end:
                raise Malformed("message ends too early")
            byte = self.view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                break
            shift += 7
            # a sixth byte would shift beyond 32 bits
            if shift > 28:
                raise Malformed("a varint has more than five bytes")
        if value > _LENGTH_MAX:
            raise Malformed(f"length {value} is above 2^31 - 1")
        self.position = position
        return value

    def nullable_string(self, *, flexible: bool) -> str | None:
        """Text, or None for null."""
        length = self.uvarint() - 1 if flexible else self.int16()
        # null and empty are rare and share the branch
        if length <= 0:
            if length < -1:
                raise Malformed(f"{length} bytes claimed")
            return "" if length == 0 else None
        start = self.position
        stop = start + length
        if stop > self.end:
            raise Malformed(f"{length} bytes claimed, {self.end - start} left")
        self.position = stop
        try:
            return str(self.view[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("text is not UTF-8") from error

    def string(self, *, flexible: bool) -> str:
        """Text that must not be null."""
        text = self.nullable_string(flexible=flexible)
        if text is None:
            raise Malformed("null where the schema has none")
        return text

    def nullable_blob(self, *, flexible: bool) -> memoryview | None:
        """Bytes as a slice of the buffer, or None for null."""
        length = self.uvarint() - 1 if flexible else self.int32()
        return None if length == -1 else self.take(length)

    def nullable_count(self, *, flexible: bool, element_size_min: int) -> int | None:
        """Length of an array whose elements take at least `element_size_min` bytes each, or None
        for null.
        """
        count = self.uvarint() - 1 if flexible else self.int32()
        if count == -1:
            return None
        # before any element is read: a count of 2^31 must not become a list
        if count < 0 or count * element_size_min > self.end - self.position:
            raise Malformed(f"{count} elements claimed, {self.end - self.position} bytes left")
        return count

    def count(self, *, flexible: bool, element_size_min: int) -> int:
        """Length of an array that must not be null."""
        count = self.nullable_count(flexible=flexible, element_size_min=element_size_min)
        if count is None:
            raise Malformed("null where the schema has none")
        return count

    def skip_tags(self) -> None:
        """Pass over a tagged section whose fields the caller does not know."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())

    def tags(self) -> Iterator[int]:
        """Each tag of a tagged section, with the position at its value: a value that is not read is
        passed over.
        """
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            start = self.position
            self.skip(size)
            stop, self.position = self.position, start
            yield tag
            if self.position not in (start, stop):
                raise Malformed("a tagged field does not have its declared size")
            self.position = stop
