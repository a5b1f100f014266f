"""Records of `__consumer_offsets`, byte for byte, and the older layouts that may be found in a
log.
"""

from __future__ import annotations

import struct

import pytest

from wire.batches.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    carried_by,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    offset_headers,
)
from wire.protocol.byte_reader import Malformed

MEMBER = MemberValue("m-1", "i", "client", "/127.0.0.1", 60_000, 10_000, b"sub", b"assigned")


def test_an_offset_key_is_version_1() -> None:
    assert encode_offset_key(OffsetKey("g", "topic", 7)) == b"\0\1" + b"\0\1g" + b"\0\5topic" + b"\0\0\0\7"


def test_a_group_key_is_version_2() -> None:
    assert encode_group_key(GroupKey("grp")) == b"\0\2" + b"\0\3grp"


def test_an_offset_value_is_version_3() -> None:
    expected = b"\0\3" + struct.pack(">qi", 42, 5) + b"\0\4note" + struct.pack(">q", 1234)
    assert encode_offset_value(OffsetValue(42, 5, "note", 1234)) == expected


def test_an_offset_with_a_retention_of_its_own_is_version_1() -> None:
    expected = b"\0\1" + struct.pack(">q", 42) + b"\0\0" + struct.pack(">qq", 1234, 9999)
    assert encode_offset_value(OffsetValue(42, 5, "", 1234, 9999)) == expected
    assert decode_offset_value(expected) == OffsetValue(42, -1, "", 1234, 9999)


def test_the_link_that_carried_an_offset_is_in_a_header_which_kafka_passes_over() -> None:
    value = OffsetValue(42, 5, "note", 1234, carried_by="a-b@3")
    assert encode_offset_value(value) == encode_offset_value(value._replace(carried_by=""))
    assert carried_by(offset_headers(value)) == "a-b@3"
    assert carried_by(offset_headers(value._replace(carried_by=""))) == carried_by([("other", b"x")]) == ""


@pytest.mark.parametrize("key", [OffsetKey("g", "t", 3), GroupKey("g"), OffsetKey("grüße", "t.a-b_c", 2**31 - 1)])
def test_keys_come_back(key: OffsetKey | GroupKey) -> None:
    raw = encode_offset_key(key) if isinstance(key, OffsetKey) else encode_group_key(key)
    assert decode_key(raw) == key


@pytest.mark.parametrize("members", [(), (MEMBER,), (MEMBER, MEMBER._replace(member_id="m-2", group_instance_id=None))])
def test_group_values_come_back(members: tuple[MemberValue, ...]) -> None:
    value = GroupValue("consumer", 4, "range" if members else None, "m-1" if members else None, 777, members)
    assert decode_group_value(encode_group_value(value)) == value


def test_oldest_layouts_are_read() -> None:
    offset = b"\0\0" + struct.pack(">q", 42) + b"\0\0" + struct.pack(">q", 1234)
    assert decode_offset_value(offset) == OffsetValue(42, -1, "", 1234)
    group = b"\0\0" + b"\0\1c" + struct.pack(">i", 1) + b"\0\1r" + b"\0\1m" + struct.pack(">i", 1)
    group += b"\0\1m" + b"\0\1c" + b"\0\1h" + struct.pack(">i", 9000) + b"\0\0\0\1s" + b"\0\0\0\1a"
    found = decode_group_value(group)
    assert found.members == (MemberValue("m", None, "c", "h", 9000, 9000, b"s", b"a"),)
    assert found.state_timestamp_ms == -1


def test_flexible_layouts_are_read() -> None:
    offset = b"\0\4" + struct.pack(">qi", 42, 5) + b"\5note" + struct.pack(">q", 1234) + b"\0"
    assert decode_offset_value(offset) == OffsetValue(42, 5, "note", 1234)
    group = b"\0\4" + b"\2c" + struct.pack(">i", 1) + b"\0\0" + struct.pack(">q", 77) + b"\2"
    group += b"\2m" + b"\0" + b"\2c" + b"\2h" + struct.pack(">ii", 5, 6) + b"\2s" + b"\2a" + b"\0" + b"\0"
    assert decode_group_value(group).members == (MemberValue("m", None, "c", "h", 5, 6, b"s", b"a"),)


def test_keys_of_other_kinds_are_passed_over() -> None:
    assert decode_key(b"\0\5whatever") is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\1\0\5ab", b"\0\2\xff\xff"])
def test_torn_keys_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_key(raw)


@pytest.mark.parametrize("decode", [decode_offset_value, decode_group_value])
def test_values_of_unknown_versions_are_malformed(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(Malformed, match="version 9"):
        decode(b"\0\x09")
