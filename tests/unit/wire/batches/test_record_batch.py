"""Headers of record batches: valid ones, refused ones, and the fields that an append may change."""

import struct

import pytest

from wire.batches.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    InvalidBatch,
    encode_header,
    iterate_headers,
    patch_header,
    patch_placement,
    read_header,
    verify_crc,
)

BODY = b"\x10\x00\x00\x00\x01\x02a\x00" * 3


def header_of(**changes: int) -> BatchHeader:
    header = BatchHeader(
        base_offset=100,
        batch_length=HEADER_SIZE - 12 + len(BODY),
        partition_leader_epoch=7,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_005,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    return header._replace(**changes)


def batch_of(**changes: int) -> bytes:
    return encode_header(header_of(**changes), BODY) + BODY


def test_header_round_trips_and_its_crc_fits() -> None:
    batch = batch_of(base_offset=5, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1)
    header = read_header(batch)
    assert header._replace(crc=0) == header_of(base_offset=5, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1)
    assert verify_crc(batch, 0, header)
    assert (header.last_offset, header.next_offset, header.size_bytes) == (7, 8, len(batch))
    assert header.last_sequence == 1


def test_attributes_are_named() -> None:
    header = header_of(attributes=0x04 | 0x08 | 0x10 | 0x20 | 0x40)
    assert header.compression == 4
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon


def test_batches_are_walked_with_their_positions() -> None:
    buffer = b"xx" + batch_of() + batch_of(base_offset=103)
    found = list(iterate_headers(buffer, 2))
    assert [(position, header.base_offset) for position, header in found] == [(2, 100), (2 + len(batch_of()), 103)]
    assert all(verify_crc(buffer, position, header) for position, header in found)


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61])
def test_cut_off_batch_is_refused_unless_a_partial_tail_is_expected(cut: int) -> None:
    buffer = batch_of() + batch_of(base_offset=103)[:cut]
    with pytest.raises(InvalidBatch, match="incomplete"):
        list(iterate_headers(buffer))
    assert len(list(iterate_headers(buffer, may_end_in_partial=True))) == 1


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_impossible_length_is_refused_even_as_a_partial_tail(length: int) -> None:
    buffer = bytearray(batch_of())
    struct.pack_into(">i", buffer, 8, length)
    with pytest.raises(InvalidBatch, match=f"length {length}"):
        list(iterate_headers(buffer, may_end_in_partial=True))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magic_is_refused(magic: int) -> None:
    buffer = bytearray(batch_of())
    buffer[16] = magic
    with pytest.raises(InvalidBatch, match=f"magic {magic}"):
        list(iterate_headers(buffer))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"record_count": -1}, "record count -1"),
        ({"record_count": 4}, "record count 4 does not fit 3 offsets"),
        ({"base_offset": -1}, "base offset -1"),
    ],
)
def test_impossible_numbers_are_refused(changes: dict[str, int], reason: str) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        list(iterate_headers(batch_of(**changes)))


def test_compacted_batch_may_have_fewer_records_than_offsets_but_not_from_a_producer() -> None:
    batch = batch_of(record_count=1)
    assert len(list(iterate_headers(batch))) == 1
    with pytest.raises(InvalidBatch, match="does not fit"):
        list(iterate_headers(batch, is_from_producer=True))


def test_leader_places_a_batch_without_touching_its_crc() -> None:
    batch = batch_of(base_offset=0)
    patched = patch_placement(batch, 0, read_header(batch), base_offset=2**40, leader_epoch=11)
    stored = b"".join(patched)
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 11)
    assert header.crc == read_header(batch).crc
    assert verify_crc(stored, 0, header)
    assert patched.rest.obj is batch


def test_another_header_renews_the_crc() -> None:
    batch = b"pad" + batch_of(base_offset=0)
    received = read_header(batch, 3)
    wanted = received._replace(
        base_offset=9,
        partition_leader_epoch=1,
        attributes=received.attributes | LOG_APPEND_TIME_BIT,
        max_timestamp=1_800_000_000_000,
    )
    stored = b"".join(patch_header(batch, 3, received, wanted))
    header = read_header(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == 1_800_000_000_000
    assert header.base_offset == 9
    assert verify_crc(stored, 0, header)
    assert stored[HEADER_SIZE:] == BODY


@pytest.mark.parametrize("position", [HEADER_SIZE - 1, -1])
def test_another_header_leaves_a_wrong_crc_wrong(position: int) -> None:
    batch = bytearray(batch_of(producer_id=4))
    batch[position] ^= 1
    received = read_header(batch)
    stored = b"".join(patch_header(batch, 0, received, received._replace(producer_id=9, base_sequence=17)))
    assert not verify_crc(stored, 0, read_header(stored))


def test_flipped_bit_is_seen_by_the_crc() -> None:
    batch = bytearray(batch_of())
    batch[-1] ^= 1
    assert not verify_crc(batch, 0, read_header(batch))
