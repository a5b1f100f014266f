"""Elements of ASN.1: lengths of all kinds, and nothing but UnusableStore for what is none."""

from __future__ import annotations

import pytest

from wire.tls.core.der import CONTEXT_0, INTEGER, children, explicit, integer, object_identifier, octets, parse
from wire.tls.core.entries import UnusableStore


def test_lengths_are_short_long_or_told_by_an_end() -> None:
    inner = b"\x04\x82\x01\x00" + b"x" * 256
    for sequence in (b"\x30\x82\x01\x04" + inner, b"\x30\x80" + inner + b"\0\0"):
        (found,) = children(parse(sequence + b"what follows"))
        assert octets(found) == b"x" * 256


def test_octets_in_pieces_are_put_together() -> None:
    pieces = b"\x24\x80" + b"\x04\x02ab" + b"\x24\x03\x04\x01c" + b"\x04\x00" + b"\0\0"
    assert octets(parse(pieces)) == b"abc"
    assert octets(parse(b"\xa0\x80\x04\x01a\x04\x01b\0\0"), CONTEXT_0) == b"ab"
    assert octets(parse(b"\x80\x02ab"), CONTEXT_0) == b"ab", "implicitly tagged and in one piece"


def test_values_are_those_of_the_standard() -> None:
    assert integer(parse(b"\x02\x02\x27\x10")) == 10_000
    assert integer(parse(b"\x02\x01\xff")) == -1
    assert object_identifier(parse(bytes.fromhex("06092a864886f70d010701"))) == "1.2.840.113549.1.7.1"
    assert object_identifier(parse(bytes.fromhex("060b6086480186f966ada77501"))).startswith("2.16.840.1.113894.")
    assert integer(explicit(parse(b"\xa0\x03\x02\x01\x05"))) == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30",
        b"\x30\x05\x02\x01",
        b"\x30\x85\x01\x00\x00\x00\x00",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x80\x02\x01\x00",
        b"\x04\x80\0\0",
        b"\x3f\x81\x01\x00",
        b"\x30\x80" * 10_000,
        b"\x30\x03\x02\x02\x00",
    ],
)
def test_what_is_cut_short_or_has_no_bounds_is_unusable(data: bytes) -> None:
    with pytest.raises(UnusableStore):
        children(parse(data), at_least=1)


@pytest.mark.parametrize("data", [b"\x02\x00", b"\x02\x09" + b"\x01" * 9, b"\x04\x01\x01"])
def test_numbers_of_no_ordinary_size_are_unusable(data: bytes) -> None:
    with pytest.raises(UnusableStore):
        integer(parse(data))


def test_octets_within_octets_have_an_end() -> None:
    data = b"\x04\x01a"
    for _ in range(60):
        data = b"\x24" + bytes([len(data)]) + data if len(data) < 128 else b"\x24\x81" + bytes([len(data)]) + data
    with pytest.raises(UnusableStore, match="deep"):
        octets(parse(data))


def test_an_element_of_another_tag_is_named() -> None:
    with pytest.raises(UnusableStore, match="0x04 instead of 0x02"):
        integer(parse(b"\x04\x01\x01"))
    assert parse(b"\x02\x01\x01").tag == INTEGER
