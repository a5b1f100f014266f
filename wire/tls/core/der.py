"""Elements of ASN.1 as they lie in key stores: DER, and of BER what other programs write (indefinite lengths, octets in pieces).

Not a general decoder: it cuts bytes into elements and reads the few kinds of values that key stores have. Whatever is cut short or out of
bounds is `UnusableStore`, and nothing else is ever raised.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wire.tls.core.entries import UnusableStore

INTEGER: Final = 0x02
OCTETS: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31
CONTEXT_0: Final = 0xA0
"""Explicitly tagged with 0, or constructed and implicitly so."""

_CONSTRUCTED: Final = 0x20
_INDEFINITE: Final = 0x80
_END_OF_CONTENTS: Final = b"\0\0"
_LENGTH_BYTES_MAX: Final = 4
_DEPTH_MAX: Final = 32
_INTEGER_BYTES_MAX: Final = 8


class Element(NamedTuple):
    """Its identifier octet, and what it holds."""

    tag: int
    content: bytes


def parse(data: bytes) -> Element:
    """The first element; what follows it is left alone."""
    return _element(data, 0, 0)[0]


def children(element: Element, tag: int = SEQUENCE, *, at_least: int = 0) -> list[Element]:
    """What an element of this tag consists of."""
    return _pieces(of_tag(element, tag).content, at_least=at_least, depth=0)


def of_tag(element: Element, tag: int) -> Element:
    """The element itself, if it is of this tag."""
    if element.tag != tag:
        raise UnusableStore(f"an element has tag 0x{element.tag:02x} instead of 0x{tag:02x}")
    return element


def explicit(element: Element, tag: int = CONTEXT_0) -> Element:
    """What an explicit tag is around."""
    return parse(of_tag(element, tag).content)


def octets(element: Element, tag: int = OCTETS, *, depth: int = 0) -> bytes:
    """An octet string, also one in pieces."""
    if element.tag == tag & ~_CONSTRUCTED:
        return element.content
    _check_depth(depth)
    pieces = _pieces(of_tag(element, tag | _CONSTRUCTED).content, at_least=0, depth=depth)
    return b"".join(octets(piece, depth=depth + 1) for piece in pieces)


def integer(element: Element) -> int:
    """A whole number of ordinary size."""
    content = of_tag(element, INTEGER).content
    if not 0 < len(content) <= _INTEGER_BYTES_MAX:
        raise UnusableStore(f"a number has {len(content)} bytes")
    return int.from_bytes(content, "big", signed=True)


def object_identifier(element: Element) -> str:
    """Dotted."""
    content = of_tag(element, OBJECT_IDENTIFIER).content
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise UnusableStore("an object identifier is cut short")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _pieces(content: bytes, *, at_least: int, depth: int) -> list[Element]:
    found, position = [], 0
    while position < len(content):
        element, position = _element(content, position, depth)
        found.append(element)
    if len(found) < at_least:
        raise UnusableStore(f"{len(found)} elements where {at_least} belong")
    return found


def _element(data: bytes, position: int, depth: int) -> tuple[Element, int]:
    """The element there, and where the next one begins."""
    _check_depth(depth)
    if position + 2 > len(data):
        raise UnusableStore("it ends within an element")
    tag, length = data[position : position + 2]
    if tag & 0x1F == 0x1F:
        raise UnusableStore(f"tag 0x{tag:02x} belongs in no key store")
    position += 2
    if length == _INDEFINITE:
        return _indefinite(data, tag, position, depth)
    if length & 0x80:
        size = length & 0x7F
        if size > _LENGTH_BYTES_MAX:
            raise UnusableStore(f"a length has {size} bytes")
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    end = position + length
    if end > len(data):
        raise UnusableStore(f"it ends {end - len(data)} bytes before an element does")
    return Element(tag, data[position:end]), end


def _indefinite(data: bytes, tag: int, begin: int, depth: int) -> tuple[Element, int]:
    if not tag & _CONSTRUCTED:
        raise UnusableStore("a simple element has no length")
    position = begin
    while data[position : position + 2] != _END_OF_CONTENTS:
        _, position = _element(data, position, depth + 1)
    return Element(tag, data[begin:position]), position + 2


def _check_depth(depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise UnusableStore(f"elements within elements, more than {_DEPTH_MAX} deep")
