"""Batches round trip with every codec, and damaged ones are only ever InvalidBatch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kio_messages import messages
from wire.batches.record_batch import HEADER_SIZE, Compression, InvalidBatch, iterate_headers, read_header, verify_crc
from wire.batches.record_walks import read_keys, record_spans
from wire.batches.records import (
    Record,
    decode_records,
    encode_batch,
    encode_record,
    open_body,
    printable_name,
    with_timestamp_delta,
)
from wire.protocol.messages.mirror_append_codec import (
    PartitionAppended,
    encode_mirror_append_response,
    mirror_append_parts,
    parse_mirror_append,
)
from wire.protocol.messages.mirror_append_messages import MirrorAppendRequest, MirrorAppendResponse
from wire.protocol.schemas import encode

RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        timestamp_ms=st.integers(0, 2**42),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=50, deadline=None)
@given(batches=st.lists(RECORDS, min_size=1, max_size=3), base_offset=st.integers(0, 2**60))
def test_batches_round_trip(codec: Compression, batches: list[list[Record]], base_offset: int) -> None:
    buffer, expected, offset = b"", [], base_offset
    for records in batches:
        buffer += encode_batch(records, base_offset=offset, compression=codec)
        expected += [
            record._replace(offset=offset + delta, headers=tuple(record.headers))
            for delta, record in enumerate(records)
        ]
        offset += len(records)
    assert [record._replace(headers=tuple(record.headers)) for record in decode_records(buffer)] == expected
    for position, header in iterate_headers(buffer, is_from_producer=True):
        assert verify_crc(buffer, position, header)
        assert header.compression == codec


def test_names_of_headers_that_are_no_utf_8_keep_their_bytes() -> None:
    plain = encode_batch([Record(None, b"v", headers=(("name?", b"1"),))])
    odd = plain.replace(b"name?", b"name\xff")
    (record,) = decode_records(odd)
    ((name, _),) = record.headers
    assert printable_name(name) == "name\\xff"
    assert encode_record(record, 0, 0) == encode_record(record._replace(headers=(("name?", b"1"),)), 0, 0).replace(
        b"name?", b"name\xff"
    )


@settings(max_examples=100, deadline=None)
@given(records=RECORDS, shift_ms=st.integers(-(2**40), 2**40))
def test_spans_are_the_records_without_their_values(records: list[Record], shift_ms: int) -> None:
    batch = encode_batch(records)
    header = read_header(batch)
    body = open_body(batch, 0, header)
    spans = record_spans(body, header.record_count)
    assert b"".join(body[span.start : span.end] for span in spans) == body
    opened = list(decode_records(batch))
    for span, record in zip(spans, opened, strict=True):
        assert (span.key, span.is_tombstone) == (record.key, record.value is None)
        assert span.offset_delta == record.offset
        assert span.timestamp_delta == record.timestamp_ms - header.base_timestamp
        elsewhere = encode_record(record, span.offset_delta, header.base_timestamp + shift_ms)
        assert with_timestamp_delta(body, span, span.timestamp_delta - shift_ms) == elsewhere


@settings(max_examples=100, deadline=None)
@given(records=RECORDS, before=st.binary(max_size=5), after=st.binary(max_size=5), base_offset=st.integers(0, 2**62))
def test_keys_are_read_from_the_middle_of_a_buffer(
    records: list[Record], before: bytes, after: bytes, base_offset: int
) -> None:
    batch = encode_batch(records)
    body = open_body(batch, 0, read_header(batch))
    offsets: dict[bytes | None, int] = {}
    end = len(before) + len(body)
    tombstone_count = read_keys(before + body + after, len(before), end, len(records), base_offset, offsets)
    assert offsets == {record.key: base_offset + number for number, record in enumerate(records)}
    assert tombstone_count == sum(record.value is None for record in records)


@settings(max_examples=400)
@given(body=st.binary(max_size=60), record_count=st.integers(0, 4))
def test_bodies_of_random_bytes_are_records_or_invalid(body: bytes, record_count: int) -> None:
    keys: dict[bytes | None, int] = {}
    try:
        spans = record_spans(body, record_count)
    except InvalidBatch:
        with pytest.raises(InvalidBatch):
            read_keys(body, 0, len(body), record_count, 0, keys)
        return
    assert read_keys(body, 0, len(body), record_count, 0, keys) == sum(span.is_tombstone for span in spans)
    assert keys.keys() == {span.key for span in spans}
    assert [span.end for span in spans][-1:] == ([len(body)] if spans else [])


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=200)
@given(records=RECORDS, data=st.data())
def test_damaged_batches_are_only_ever_invalid(codec: Compression, records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records, compression=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for buffer in (bytes(batch), bytes(batch[: data.draw(st.integers(0, len(batch)))])):
        try:
            list(decode_records(buffer))
        except InvalidBatch:
            continue


def test_a_batch_that_claims_too_many_bytes_is_invalid() -> None:
    batch = bytearray(encode_batch([Record(key=None, value=bytes(100))], compression=Compression.SNAPPY))
    # the length at the beginning of a snappy block, as a varint
    batch[HEADER_SIZE : HEADER_SIZE + 5] = b"\x81\x80\x80\x80\x0c"
    with pytest.raises(InvalidBatch, match="more than"):
        list(decode_records(bytes(batch)))
    # cleaners and the rows of Spark open the body themselves
    with pytest.raises(InvalidBatch, match="more than"):
        open_body(bytes(batch), 0, read_header(batch))


@settings(max_examples=200)
@given(buffer=st.binary(max_size=200))
def test_random_bytes_are_only_ever_invalid_batches(buffer: bytes) -> None:
    try:
        list(iterate_headers(buffer))
    except InvalidBatch:
        return


@settings(max_examples=60, deadline=None)
@given(request=messages(MirrorAppendRequest))
def test_mirror_append_is_that_of_its_entity(request: MirrorAppendRequest) -> None:
    encoded = encode(request)
    parsed = parse_mirror_append(b"x" + encoded, 1)
    assert (parsed.link, parsed.link_epoch) == (request.link, request.link_epoch)
    parts, size = mirror_append_parts(parsed)
    assert b"".join(parts) == encoded
    assert size == len(encoded)


@settings(max_examples=60, deadline=None)
@given(response=messages(MirrorAppendResponse))
def test_a_mirror_append_response_is_that_of_its_entity(response: MirrorAppendResponse) -> None:
    topics = [
        (
            topic.name,
            [
                PartitionAppended(
                    partition_index=answer.index,
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                    log_end_offset=answer.log_end_offset,
                    link_epoch=answer.link_epoch,
                    divergence_epoch=answer.divergence_epoch,
                    divergence_end_offset=answer.divergence_end_offset,
                )
                for answer in topic.partitions
            ],
        )
        for topic in response.topics
    ]
    throttle_time_ms = round(response.throttle_time.total_seconds() * 1000)
    assert encode_mirror_append_response(topics, throttle_time_ms=throttle_time_ms) == encode(response)
