"""Subscriptions and assignments as consumers write them; bytes are those of Java's own
serializer.
"""

from __future__ import annotations

import pytest

from wire.batches.consumer_group_records import (
    MEMBER_KIND,
    ClassicMember,
    MemberMetadata,
    decode_consumer_group_value,
    encode_consumer_group_value,
)
from wire.batches.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from wire.protocol.byte_reader import Malformed

VERSION_0 = bytes.fromhex("0000 00000001 0001 74 ffffffff")
VERSION_1 = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000001 0001 74 00000002 00000000 00000003")
ASSIGNMENT = bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000003 ffffffff")


def test_a_subscription_says_what_is_wanted_and_what_is_owned() -> None:
    assert decode_subscription(VERSION_0) == Subscription(0, ("t",), {})
    assert decode_subscription(VERSION_1) == Subscription(1, ("t",), {"t": (0, 3)})


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_survive_the_way_there_and_back(version: int) -> None:
    owned = {"t": (0, 3), "u": ()} if version >= 1 else {}
    written = Subscription(version, ("t", "u"), owned, "rack" if version >= 3 else None)
    assert decode_subscription(encode_subscription(written)) == written


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = bytearray(encode_subscription(Subscription(3, ("t",), {"t": (1,)}, "r")))
    later[1] = 9
    assert decode_subscription(bytes(later) + b"more").owned == {"t": (1,)}


def test_topics_are_read_also_where_fields_of_the_version_are_left_out() -> None:
    cut = VERSION_1[: len(VERSION_0)]
    assert subscribed_topics(cut) == subscribed_topics(VERSION_1) == ("t",)
    for raw in (b"", b"\xff\xff" + VERSION_0[2:], VERSION_0[:-1]):
        with pytest.raises(Malformed):
            subscribed_topics(raw)


def test_assignments_are_those_of_java() -> None:
    assert decode_assignment(ASSIGNMENT) == {"t": (0, 3)}
    assert encode_assignment(1, {"t": (0, 3)}) == ASSIGNMENT
    assert decode_assignment(b"") == {}


@pytest.mark.parametrize(
    "raw", [b"", b"\0", VERSION_0[:7], VERSION_1[:-2], b"\xff\xff" + VERSION_0[2:], b"text of another kind"]
)
def test_bytes_that_are_no_subscription_are_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_subscription(raw)


def test_a_member_of_the_classic_protocol_is_kept_with_what_it_offered() -> None:
    member = MemberMetadata(
        None, None, "c", "/h", ("t",), None, 5, None, ClassicMember(6000, (("range", VERSION_1), ("sticky", b"")))
    )
    assert decode_consumer_group_value(MEMBER_KIND, encode_consumer_group_value(member)) == member
    plain = member._replace(classic=None)
    assert decode_consumer_group_value(MEMBER_KIND, encode_consumer_group_value(plain)) == plain
