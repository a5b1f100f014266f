"""Every message of every version survives framing, and malformed bytes only ever cause
MalformedRequest.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from tests.support.kio_messages import messages
from wire.protocol import schemas
from wire.protocol.byte_reader import Malformed
from wire.protocol.byte_writer import uvarint_bytes
from wire.protocol.length_guard import ELEMENTS_MAX
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.streams.frames import (
    MalformedRequest,
    MalformedResponse,
    UnsupportedVersion,
    VersionRange,
    check_supported,
    decode_request_body,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)

RELAXED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
API_KEYS = st.sampled_from([*api_key_map, *PRIVATE_VERSIONS])


@st.composite
def apis(draw: st.DrawFn) -> tuple[int, int]:
    api_key = draw(API_KEYS)
    versions = schemas.schema_versions(api_key)
    assert versions is not None
    return api_key, draw(st.integers(*versions))


@RELAXED
@given(
    data=st.data(),
    api=apis(),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=9),
)
def test_every_request_round_trips(
    data: st.DataObject, api: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    request = data.draw(messages(schemas.request_type(*api)))
    sized = encode_request(*api, correlation_id, client_id, request)
    assert struct.unpack_from(">i", sized)[0] == len(sized) - 4
    frame = sized[4:]
    header = parse_request_header(frame)
    assert header[:4] == (*api, correlation_id, client_id)
    assert decode_request_body(frame, header) == request


@RELAXED
@given(data=st.data(), api=apis(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_every_response_round_trips(data: st.DataObject, api: tuple[int, int], correlation_id: int) -> None:
    response = data.draw(messages(schemas.response_type(*api)))
    sized = encode_response(*api, correlation_id, response)
    assert struct.unpack_from(">ii", sized) == (len(sized) - 4, correlation_id)
    assert decode_response(sized[4:], *api) == response


def read_hostile(frame: bytes) -> Any:
    try:
        return decode_request_body(frame, parse_request_header(frame))
    except MalformedRequest:
        return None


@settings(max_examples=600)
@given(
    api=apis(),
    body=st.binary(max_size=300) | st.lists(st.sampled_from(b"\0\1\2\x0f\x7f\x80\xff"), max_size=200).map(bytes),
)
def test_random_bytes_are_only_ever_malformed(api: tuple[int, int], body: bytes) -> None:
    read_hostile(struct.pack(">hhih", *api, 1, -1) + body)
    read_hostile(body)


@settings(max_examples=500)
@given(
    api_key=API_KEYS | st.integers(-(2**15), 2**15 - 1),
    version=st.integers(-(2**15), 2**15 - 1) | st.integers(-1, 20),
    rest=st.binary(max_size=30),
)
def test_unknown_apis_and_versions_are_unsupported_or_malformed(api_key: int, version: int, rest: bytes) -> None:
    frame = struct.pack(">hhi", api_key, version, 77) + rest
    try:
        header = parse_request_header(frame)
    except MalformedRequest:
        return
    assert header[:3] == (api_key, version, 77)
    if api_key == 18 and 0 <= version <= 4:
        check_supported(header, {18: VersionRange(0, 4)})
        return
    with pytest.raises(UnsupportedVersion) as refused:
        check_supported(header, {18: VersionRange(0, 4)})
    assert refused.value.is_api_versions == (api_key == 18)


@settings(RELAXED, max_examples=200)
@given(data=st.data(), api=apis())
def test_damaged_requests_are_only_ever_malformed(data: st.DataObject, api: tuple[int, int]) -> None:
    frame = bytearray(encode_request(*api, 1, "c", data.draw(messages(schemas.request_type(*api))))[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read_hostile(bytes(frame[: data.draw(st.integers(8, len(frame)))]))


@settings(RELAXED, max_examples=400)
@given(data=st.data(), api=apis())
def test_damaged_responses_are_only_ever_malformed(data: st.DataObject, api: tuple[int, int]) -> None:
    frame = bytearray(encode_response(*api, 1, data.draw(messages(schemas.response_type(*api))))[4:])
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedResponse):
        decode_response(bytes(frame), *api)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ((3, 1), struct.pack(">i", 2**31 - 1)),
        ((3, 9), b"\xff\xff\xff\xff\x0f"),
        ((3, 12), b"\xff\xff\xff\xff\x07" + b"\x01" * 1000),
        ((3, 12), b"\x01\0\0" + b"\xff\xff\xff\xff\x07"),
        ((9, 1), b"\0\0" + struct.pack(">ihi", 1, 0, 2**31 - 1)),
        ((0, 9), b"\0" * 7 + b"\xff\xff\xff\xff\x07"),
        ((19, 2), struct.pack(">i", 2**30)),
    ],
)
def test_a_claimed_two_billion_elements_is_refused_before_anything_is_allocated(
    api: tuple[int, int], body: bytes
) -> None:
    frame = encode_request_start(*api) + body
    with pytest.raises(MalformedRequest):
        decode_request_body(frame, parse_request_header(frame))


def test_elements_of_a_message_are_bounded_over_all_its_arrays() -> None:
    many = b"\2a" + uvarint_bytes(ELEMENTS_MAX) + bytes(4 * (ELEMENTS_MAX - 1)) + b"\0"
    few = b"\2b" + uvarint_bytes(3) + bytes(8) + b"\0"
    frame = encode_request_start(9, 6) + b"\2g\3" + many + few + b"\0"
    with pytest.raises(MalformedRequest, match=f"more than {ELEMENTS_MAX} elements"):
        decode_request_body(frame, parse_request_header(frame))


def encode_request_start(api_key: int, version: int) -> bytes:
    tags = b"\0" if schemas.is_flexible(api_key, version) else b""
    return struct.pack(">hhih", api_key, version, 1, -1) + tags


@RELAXED
@given(data=st.data(), tag=st.integers(100, 2**20), value=st.binary(max_size=200))
def test_unknown_tags_are_passed_over(data: st.DataObject, tag: int, value: bytes) -> None:
    entity_type = schemas.request_type(1, 12)
    request = data.draw(messages(entity_type))
    encoded = schemas.encode(request)
    known = 0 if request.cluster_id is None else 1
    assume(encoded.endswith(b"\0") or known)
    section = len(encoded) - 1
    if known:
        cluster_id = request.cluster_id.encode()
        compact = uvarint_bytes(len(cluster_id) + 1) + cluster_id
        section -= len(b"\0" + uvarint_bytes(len(compact)) + compact)
    unknown = uvarint_bytes(tag) + uvarint_bytes(len(value)) + value
    extended = encoded[:section] + bytes((known + 1,)) + encoded[section + 1 :] + unknown
    assert schemas.decode(entity_type, b"pad" + extended, 3) == request


def test_unknown_tags_inside_a_known_tag_are_passed_over() -> None:
    entity_type = schemas.request_type(1, 15)
    replica_state = struct.pack(">iq", 7, 9) + b"\1" + b"\x64\1x"
    plain = schemas.encode(
        schemas.decode(entity_type, struct.pack(">iiib", 0, 0, 0, 0) + struct.pack(">ii", 0, 0) + b"\1\1\1\0")
    )
    tagged = plain[:-1] + b"\1\1" + bytes((len(replica_state),)) + replica_state
    decoded = schemas.decode(entity_type, tagged)
    assert (decoded.replica_state.replica_id, decoded.replica_state.replica_epoch) == (7, 9)


def test_tags_out_of_order_are_refused() -> None:
    encoded = schemas.encode(schemas.request_type(18, 3)(client_software_name="a", client_software_version="1"))
    with pytest.raises(Malformed, match="tag 5 after tag 5"):
        schemas.decode(schemas.request_type(18, 3), encoded[:-1] + b"\2\5\0\5\0")
