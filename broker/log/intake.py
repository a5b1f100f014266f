"""Prepares an append before anything is written: checks the batches, places them, and patches them
for one write.

`take_from_producer` gives offsets and the leader epoch, and checks sequences with the producers'
state; `apply_replicated` leaves batches as they are. Neither changes any state: a refusal
(BatchRejected) or a failed write leaves no trace.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import (
    BatchLimits,
    BatchRejected,
    check_continues,
    check_produced,
    check_records,
    check_size,
    lacks_records,
    open_produced,
)
from broker.log.core.producer_state import ProducerStates
from broker.log.core.producer_values import CompletedTransaction, DuplicateSequence, ProducerChange
from broker.log.core.retention import RELATIVE_OFFSET_MAX
from broker.log.markers import read_marker
from broker.log.segments.indexed_batches import PlacedBatch, place
from runtime.disk import Buffer
from wire.batches.codecs import compress
from wire.batches.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    encode_header,
    iterate_headers,
    patch_header,
    patch_placement,
    verify_crc,
)


class AppendInfo(NamedTuple):
    """The result of an append. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    record_count: int


class Intake:
    """An append in the making. `next_offset` follows its last batch; `answered` are batches that
    the log already has. `has_holes`: replicated batches lack records between them or within.
    """

    __slots__ = ("answered", "changes", "completed", "has_holes", "next_offset", "pieces", "placed", "record_count")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.placed: list[PlacedBatch] = []
        self.pieces: list[Buffer] = []
        self.changes: dict[int, ProducerChange] = {}
        self.completed: list[CompletedTransaction] = []
        self.answered: list[DuplicateSequence] = []
        self.record_count = 0
        self.has_holes = False

    @property
    def size_bytes(self) -> int:
        """Bytes to be written."""
        return sum(batch.size_bytes for batch in self.placed)


def take_from_producer(
    records: Buffer,
    producers: ProducerStates,
    limits: BatchLimits,
    *,
    log_end_offset: int,
    leader_epoch: int,
    now_ms: int,
    is_from_client: bool,
    may_begin: bool = True,
) -> Intake:
    """Batches that a leader appends."""
    intake = Intake(log_end_offset)
    # a batch that the broker itself has just encoded needs no second check
    for position, received in checked_headers(records, is_from_producer=is_from_client, has_checksum=is_from_client):
        stored = (
            _checked(records, position, received, limits, now_ms)
            if is_from_client
            else _Stored(_with_append_time(received, limits, now_ms))
        )
        header = stored.header
        if header.producer_id >= 0 and not _ask_producers(
            intake, producers, records, position, header, is_checked=is_from_client, may_begin=may_begin
        ):
            continue
        offset = intake.next_offset
        if stored.body is not None:
            placed = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
            # the longest path is for batches that the broker recompresses: the whole header changes
            intake.pieces += (encode_header(placed, stored.body), stored.body)
        elif header is not received:
            # the header has another timestamp: the checksum is made anew over the same records
            placed = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
            intake.pieces += patch_header(records, position, received, placed)
        else:
            # base offset and leader epoch lie outside the checksum: nothing is hashed again
            intake.pieces += patch_placement(records, position, received, base_offset=offset, leader_epoch=leader_epoch)
        last_offset = offset + header.last_offset_delta
        # by `tuple.__new__`: the constructor of a named tuple is Python, and takes longer
        fields = offset, last_offset, header.size_bytes, header.max_timestamp
        intake.placed.append(tuple.__new__(PlacedBatch, fields))
        intake.record_count += header.record_count
        intake.next_offset = last_offset + 1
    return intake


class _Stored:
    """A batch in its stored form: its header, and its records if the broker recompressed them."""

    def __init__(self, header: BatchHeader, body: bytes | None = None) -> None:
        self.header = header
        self.body = body


def _checked(records: Buffer, position: int, received: BatchHeader, limits: BatchLimits, now_ms: int) -> _Stored:
    """A client's batch after the check of each record, with the header and the codec that the topic
    wants.
    """
    check_produced(received, limits)
    body = open_produced(records, position, received, limits)
    max_timestamp = check_records(body, received, limits, now_ms)
    header = _with_append_time(received, limits, now_ms)
    # a producer's largest timestamp is not trusted: retention and lookups by time use it
    if header is received and max_timestamp != received.max_timestamp:
        header = received._replace(max_timestamp=max_timestamp)
    codec = limits.compression
    if codec is None or codec == received.compression:
        return _Stored(header)
    packed = compress(body, codec, limits.compression_level)
    header = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
        attributes=header.attributes & ~COMPRESSION_MASK | codec,
    )
    # recompression may have made it larger than max.message.bytes
    check_size(header, limits)
    return _Stored(header, packed)


def _with_append_time(header: BatchHeader, limits: BatchLimits, now_ms: int) -> BatchHeader:
    """Under LogAppendTime, set the largest timestamp in the header: readers take a record's time
    from there, so records stay unchanged.
    """
    if not limits.is_log_append_time:
        return header
    return header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)


def _ask_producers(
    intake: Intake,
    producers: ProducerStates,
    records: Buffer,
    position: int,
    header: BatchHeader,
    *,
    is_checked: bool,
    may_begin: bool,
) -> bool:
    """Record the batch's change of its producer's state; False if the log already has the batch."""
    change: ProducerChange | DuplicateSequence
    if header.is_control:
        marker = read_marker(records, position, header)
        if marker is None:
            raise BatchRejected(ErrorCode.invalid_record, "control batch without a transaction marker")
        change = producers.prepare_marker(header, intake.next_offset, marker, is_checked=True)
    else:
        # two batches of one producer in one append: the second follows the first, which is not
        # applied yet
        earlier = intake.changes.get(header.producer_id)
        change = producers.prepare_batch(
            header, intake.next_offset, is_checked=is_checked, prepared=earlier, may_begin=may_begin
        )
    if isinstance(change, DuplicateSequence):
        intake.answered.append(change)
        return False
    intake.changes[header.producer_id] = change
    if change.completed is not None:
        intake.completed.append(change.completed)
    return True


def apply_replicated(
    records: Buffer, *, log_end_offset: int, latest_epoch: int
) -> tuple[Intake, list[tuple[int, BatchHeader]]]:
    """Batches that follow the log as they are, and their headers with positions."""
    intake = Intake(log_end_offset)
    headers = checked_headers(records, is_from_producer=False, has_checksum=True)
    for _, header in headers:
        check_continues(header, log_end_offset=intake.next_offset, latest_epoch=latest_epoch)
        latest_epoch = max(latest_epoch, header.partition_leader_epoch)
        intake.placed.append(place(header))
        intake.record_count += header.record_count
        intake.has_holes = intake.has_holes or lacks_records(header, intake.next_offset)
        intake.next_offset = header.next_offset
    # one append must fit one segment, whose index entries hold relative offsets of 32 bits
    if intake.next_offset - headers[0][1].base_offset > RELATIVE_OFFSET_MAX:
        raise BatchRejected(ErrorCode.record_list_too_large, "offsets of one append lie too far apart for a segment")
    # one piece for all batches: nothing is patched, so the buffer goes to the disk as it came
    intake.pieces.append(records)
    return intake, headers


def checked_headers(records: Buffer, *, is_from_producer: bool, has_checksum: bool) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of the batches in `records`, at least one, whose structure is right,
    and checksums if they have any.

    A producer sends one batch for each partition. The codes are those of Apache Kafka for the same
    bytes: a batch that a retry cannot correct gets INVALID_RECORD.
    """
    try:
        headers = list(iterate_headers(records, is_from_producer=is_from_producer))
    except InvalidBatch as invalid:
        code = ErrorCode.invalid_record if is_from_producer and not invalid.is_damage else ErrorCode.corrupt_message
        raise BatchRejected(code, str(invalid)) from invalid
    if not headers:
        raise BatchRejected(ErrorCode.invalid_record if is_from_producer else ErrorCode.corrupt_message, "no batch")
    if is_from_producer and len(headers) > 1:
        raise BatchRejected(ErrorCode.invalid_record, f"{len(headers)} batches for one partition, accepted is one")
    for position, header in headers if has_checksum else ():
        if not verify_crc(records, position, header):
            raise BatchRejected(ErrorCode.corrupt_message, f"batch at byte {position}: the checksum does not fit")
    return headers


def found_again(answered: list[DuplicateSequence], limits: BatchLimits, *, log_start_offset: int) -> AppendInfo:
    """The answer to an append whose batches are all in the log already."""
    first, last = answered[0], answered[-1]
    appended_ms = first.timestamp_ms if limits.is_log_append_time else -1
    return AppendInfo(
        first_offset=first.first_offset,
        last_offset=last.last_offset,
        log_append_time_ms=appended_ms,
        log_start_offset=log_start_offset,
        is_duplicate=True,
        record_count=0,
    )
