"""Small batches that become one: the same records, counted on, under one checksum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.translate.core.merging import (
    MERGED_BYTES_MAX,
    SMALL_BYTES,
    ToSend,
    grouped,
    is_mergeable,
    may_be_merged,
    merged,
)
from mirror.translate.core.renumbering import Piece, Stamp
from mirror.translate.core.translation import Planned
from wire.batches.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    Compression,
    InvalidBatch,
    encode_header,
    read_header,
    verify_crc,
)
from wire.batches.records import Record, decode_records, encode_batch

OURS = 4711
FIRST_OFFSET = 100

RECORDS = st.builds(
    Record,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=80),
    timestamp_ms=st.integers(0, 2**48),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
)


def to_send(*batches: bytes, producer_ids: tuple[int, ...] = ()) -> tuple[bytes, list[ToSend]]:
    """The batches as fetched, and as they are planned: under our producer, where no others are
    given.
    """
    position = sequence = 0
    found = []
    for number, batch in enumerate(batches):
        header = read_header(batch)
        stamp = Stamp(producer_ids[number] if producer_ids else OURS, 3, sequence)
        plan = Planned(header.base_offset, header.next_offset, 1, header.record_count, stamp)
        found.append(ToSend(position, header, plan, stamp))
        position, sequence = position + len(batch), sequence + header.record_count
    return b"".join(batches), found


def sizes(*batches: bytes, producer_ids: tuple[int, ...] = (), is_merging: bool = True) -> list[int]:
    _, planned = to_send(*batches, producer_ids=producer_ids)
    return [len(group) for group in grouped(planned, is_merging=is_merging)]


def batch(count: int = 1, *, size: int = 10, compression: Compression = Compression.NONE, attributes: int = 0) -> bytes:
    records = [Record(None, bytes(size), 1)] * count
    return encode_batch(records, base_offset=FIRST_OFFSET, compression=compression, attributes=attributes)


@given(st.lists(st.lists(RECORDS, min_size=1, max_size=70), min_size=1, max_size=5))
def test_merged_batches_have_the_records_of_the_source(contents: list[list[Record]]) -> None:
    offset, batches = FIRST_OFFSET, []
    for records in contents:
        batches.append(encode_batch(records, base_offset=offset, leader_epoch=7, producer_id=9))
        offset += len(records)
    fetched, group = to_send(*batches)
    (planned,) = grouped(group, is_merging=True)
    whole = b"".join(merged(fetched, planned))
    header = read_header(whole)
    assert verify_crc(whole, 0, header)
    assert len(whole) == header.size_bytes
    assert header.record_count == header.last_offset_delta + 1 == sum(map(len, contents))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (OURS, 3, 0)
    expected = [record for records in contents for record in records]
    assert header.max_timestamp == max(record.timestamp_ms for record in expected)
    found = [record._replace(headers=tuple(record.headers)) for record in decode_records(whole)]
    assert found == [record._replace(offset=index) for index, record in enumerate(expected)]
    assert [piece for one in group for piece in one.plan.pieces] == [
        Piece(one.header.base_offset, 0, one.header.record_count) for one in group
    ]


def test_only_small_batches_without_a_codec_are_merged() -> None:
    small = batch()
    assert sizes(small, small, small) == [3]
    assert sizes(small, small, is_merging=False) == [1, 1]
    large = batch(size=SMALL_BYTES)
    assert sizes(small, large, small, small) == [1, 1, 2]
    assert sizes(small, batch(compression=Compression.LZ4), small) == [1, 1, 1]
    assert sizes(small, batch(attributes=LOG_APPEND_TIME_BIT), small) == [1, 1, 1]
    assert sizes(small, small, small, producer_ids=(OURS, OURS, OURS + 1)) == [2, 1]


def test_a_batch_with_holes_is_not_merged() -> None:
    header = read_header(batch(3))
    assert is_mergeable(header)
    assert not is_mergeable(header._replace(record_count=2))


@pytest.mark.parametrize("size", [0, 10, 1_000])
def test_a_merged_batch_is_never_longer_than_its_limit(size: int) -> None:
    """Deltas grow when they count from an earlier batch on, and most for the smallest records."""
    count = 4 * MERGED_BYTES_MAX // (size + 70)
    batches = [encode_batch([Record(None, bytes(size), number * 2**40)], base_offset=number) for number in range(count)]
    fetched, planned = to_send(*batches)
    lengths = [sum(map(len, merged(fetched, group))) for group in grouped(planned, is_merging=True)]
    assert len(lengths) > 1
    assert max(lengths) <= MERGED_BYTES_MAX
    assert all(may_be_merged(read_header(merged(fetched, group).prefix)) for group in grouped(planned, is_merging=True))


def test_a_batch_that_is_corrupt_is_not_merged() -> None:
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    fetched, group = to_send(batch(), bytes(damaged))
    with pytest.raises(InvalidBatch, match="fails its checksum"):
        merged(fetched, group)


def test_records_that_contradict_their_batch_are_not_merged() -> None:
    whole = batch(3)
    body = whole[HEADER_SIZE:] + b"\x00"
    header = read_header(whole)._replace(batch_length=read_header(whole).batch_length + 1)
    contradiction = encode_header(header, body) + body
    fetched, group = to_send(batch(), contradiction)
    with pytest.raises(InvalidBatch):
        merged(fetched, group)
