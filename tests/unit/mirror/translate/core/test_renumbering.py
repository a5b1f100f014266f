"""A batch under another producer: the records' bytes stay, the checksum fits, and batches that must
not pass are left out.
"""

from __future__ import annotations

import struct

import pytest

from clients.reader.core.committed import skipped_batches
from mirror.translate.core.renumbering import Piece, Stamp, renumber
from wire.batches.record_batch import HEADER_SIZE, Compression, InvalidBatch, encode_header, read_header, verify_crc
from wire.batches.records import Record, decode_records, encode_batch

STAMP = Stamp(4711, 3, 2_000_000_000)
RECORDS = [Record(b"key", b"value" * 20, 1000 + number, (("name", b"header"),)) for number in range(5)]
TRANSACTIONAL = 0x10
LOG_APPEND_TIME = 0x08


def source_batch(compression: Compression = Compression.NONE, **fields: int) -> bytes:
    return encode_batch(RECORDS, base_offset=100, leader_epoch=7, compression=compression, producer_id=9, **fields)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    key = struct.pack(">hh", 0, int(is_commit))
    value = struct.pack(">hi", 0, 0)
    return encode_batch([Record(key, value)], base_offset=offset, producer_id=producer_id, attributes=0x30)


def transactional(offset: int, producer_id: int, count: int = 2) -> bytes:
    records = [Record(None, b"v")] * count
    return encode_batch(records, base_offset=offset, producer_id=producer_id, attributes=TRANSACTIONAL, base_sequence=0)


@pytest.mark.parametrize("compression", list(Compression))
def test_records_keep_their_bytes_under_every_codec(compression: Compression) -> None:
    batch = source_batch(compression)
    renumbered = renumber(batch, 0, read_header(batch), STAMP)
    whole = b"".join(renumbered.batch)
    header = read_header(whole)
    assert whole[HEADER_SIZE:] == batch[HEADER_SIZE:]
    assert header.compression == compression
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == STAMP
    assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
    assert verify_crc(whole, 0, header)
    assert renumbered.pieces == (Piece(100, 0, 5),)


def test_a_transaction_s_batch_becomes_an_ordinary_one() -> None:
    batch = transactional(10, 1)
    header = read_header(renumber(batch, 0, read_header(batch), STAMP).batch.prefix)
    assert not header.is_transactional


def test_a_batch_becomes_a_part_of_the_mirror_s_own_transaction() -> None:
    for batch in (source_batch(Compression.LZ4), source_batch(attributes=LOG_APPEND_TIME)):
        renumbered = b"".join(renumber(batch, 0, read_header(batch), STAMP, is_transactional=True).batch)
        header = read_header(renumbered)
        assert header.is_transactional
        assert header.compression == read_header(batch).compression
        assert verify_crc(renumbered, 0, header)
        assert len(list(decode_records(renumbered))) == len(RECORDS)


def test_a_batch_that_is_corrupt_gets_no_right_checksum() -> None:
    batch = bytearray(source_batch())
    batch[-1] ^= 1
    whole = b"".join(renumber(batch, 0, read_header(batch), STAMP).batch)
    assert not verify_crc(whole, 0, read_header(whole))


def test_records_of_a_corrupt_batch_are_not_written_anew() -> None:
    batch = bytearray(source_batch(attributes=LOG_APPEND_TIME))
    batch[-1] ^= 1
    with pytest.raises(InvalidBatch, match="offset 100 fails its checksum"):
        renumber(batch, 0, read_header(batch), STAMP)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_holes_that_compaction_left_are_closed_and_remembered(compression: Compression) -> None:
    whole = source_batch(compression)
    kept = [record for number, record in enumerate(RECORDS) if number in (0, 1, 4)]
    from wire.batches.codecs import compress
    from wire.batches.records import encode_record

    deltas = (0, 1, 4)
    body = b"".join(encode_record(record, delta, 1000) for record, delta in zip(kept, deltas, strict=True))
    packed = compress(body, compression)
    header = read_header(whole)._replace(batch_length=HEADER_SIZE - 12 + len(packed), record_count=3)
    compacted = encode_header(header, packed) + packed
    renumbered = renumber(compacted, 0, read_header(compacted), STAMP)
    assert renumbered.pieces == (Piece(100, 0, 2), Piece(104, 2, 1))
    found = list(decode_records(b"".join(renumbered.batch)))
    assert [(record.key, record.value, record.timestamp_ms) for record in found] == [
        (record.key, record.value, record.timestamp_ms) for record in kept
    ]
    assert [record.offset for record in found] == [0, 1, 2]


def test_the_broker_s_time_becomes_the_record_s_own() -> None:
    body = source_batch()
    header = read_header(body)
    stamped = encode_header(header._replace(attributes=0x08, max_timestamp=5_000), body[HEADER_SIZE:])
    batch = stamped + body[HEADER_SIZE:]
    renumbered = b"".join(renumber(batch, 0, read_header(batch), STAMP).batch)
    assert not read_header(renumbered).is_log_append_time
    assert {record.timestamp_ms for record in decode_records(renumbered)} == {5_000}


def skipped(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> set[int]:
    return set(skipped_batches(b"".join(batches), aborted=aborted, is_unwanted=lambda header: header.producer_id == 77))


def test_markers_are_left_out() -> None:
    assert skipped(transactional(0, 1), marker(2, 1, is_commit=True), transactional(3, 1)) == {2}


def test_aborted_transactions_are_left_out_and_their_producer_s_next_one_is_not() -> None:
    found = skipped(
        transactional(0, 1),
        transactional(2, 2),
        marker(4, 1, is_commit=False),
        transactional(5, 1),
        marker(7, 1, is_commit=True),
        marker(8, 2, is_commit=True),
        aborted=((1, 0),),
    )
    assert found == {0, 4, 7, 8}


def test_an_aborted_transaction_that_began_before_the_fetched_range_is_left_out_too() -> None:
    assert skipped(transactional(5, 1), marker(7, 1, is_commit=False), aborted=((1, 2),)) == {5, 7}


def test_only_the_marker_of_an_aborted_transaction_is_in_the_range() -> None:
    found = skipped(
        marker(7, 1, is_commit=False), transactional(8, 1), marker(10, 1, is_commit=True), aborted=((1, 2),)
    )
    assert found == {7, 10}


def test_records_that_a_mirror_brought_from_the_target_do_not_go_back() -> None:
    ours = encode_batch(RECORDS, base_offset=0, producer_id=77, base_sequence=0)
    theirs = encode_batch(RECORDS, base_offset=5, producer_id=78, base_sequence=0)
    assert skipped(ours, theirs) == {0}
