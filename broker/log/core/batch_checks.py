"""Checks a record batch before a leader or a follower appends it. Pure.

The structure of a header (lengths, counts, magic) is checked by wire/batches/record_batch.py while
it is read; this module has the rules that depend on the sender and on the topic. Each record of a
producer's batch is checked, as in Apache Kafka's LogValidator: a batch that consumers cannot read
would stop all consumers of the partition at both sites. Batches from leaders and mirrors were
checked when a producer sent them, and are trusted by their checksum.

Three rules are stricter than Kafka's, which stores such batches: records carry offset deltas from 0
on in steps of 1, a length below -1 is damage, and a record ends where its length says also in a
compressed batch.

Callers: broker/log/intake.py; the produce path turns `BatchRejected.code` and its record errors
into the response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from mypy_extensions import mypyc_attr

from broker.settings.core.topic_configs import LogConfig
from wire.batches.codecs import TooLarge
from wire.batches.record_batch import BatchHeader, Buffer, Compression, InvalidBatch
from wire.batches.record_walks import RecordSummary, summarize_records
from wire.batches.records import Record, decode_body, open_body
from wire.protocol.ids import NO_TIMESTAMP
from wire.protocol.messages.produce_codec import RecordError

_CODEC_MAX: Final = 4  # zstd
_SHOWN_ERRORS: Final = 3
_LONG_MAX: Final = 2**63 - 1
_LONG_MIN: Final = -(2**63)


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchRejected(Exception):
    """A batch the log will not take: the Kafka error code for the client, the reason, and the
    records at fault (KIP-467).
    """

    def __init__(self, code: ErrorCode, reason: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.record_errors = record_errors


OPENED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A produced batch that decompresses to more is refused, unless the topic accepts batches of that
size: this bounds memory.
"""


class BatchLimits(NamedTuple):
    """The topic's rules for what producers send."""

    message_bytes_max: int
    is_log_append_time: bool
    must_have_keys: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    compression: Compression | None
    """The codec of the topic; None keeps the producer's."""
    compression_level: int | None
    opened_bytes_max: int
    """The largest allowed size of a compressed batch after decompression."""

    @classmethod
    def of(cls, config: LogConfig) -> BatchLimits:
        """The limits of a topic with this configuration."""
        return cls(
            message_bytes_max=config.message_bytes_max,
            is_log_append_time=config.is_log_append_time,
            must_have_keys=config.is_compacted,
            timestamp_before_ms_max=config.timestamp_before_ms_max,
            timestamp_after_ms_max=config.timestamp_after_ms_max,
            compression=config.compression,
            compression_level=config.compression_level,
            opened_bytes_max=max(OPENED_BYTES_MAX, config.message_bytes_max),
        )


def check_produced(header: BatchHeader, limits: BatchLimits) -> None:
    """Refuse a client's batch whose header breaks the topic's limits; the caller checks the CRC."""
    check_size(header, limits)
    # Kafka's clients send 0; another value would be stored in a batch that is not patched
    if header.base_offset != 0:
        raise BatchRejected(ErrorCode.invalid_record, f"base offset {header.base_offset}; accepted: 0")
    attributes = header.attributes
    if attributes & 0x07 > _CODEC_MAX:
        raise BatchRejected(
            ErrorCode.unsupported_compression_type,
            f"compression codec {attributes & 7}; accepted: 0 to {_CODEC_MAX}",
        )
    if header.record_count == 0:
        raise BatchRejected(ErrorCode.invalid_record, "batch without records")
    if attributes & 0x20:
        raise BatchRejected(ErrorCode.invalid_record, "clients may not write control batches")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            # KIP-98: a producer id needs an epoch and a sequence, or duplicates could not be
            # recognised
            raise BatchRejected(
                ErrorCode.invalid_record,
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}",
            )
    elif attributes & 0x10:
        raise BatchRejected(ErrorCode.invalid_record, "transactional batch without a producer id")
    # only the broker sets the append time
    if attributes & 0x08:
        raise BatchRejected(ErrorCode.invalid_timestamp, "producers may not set the timestamp type to LogAppendTime")


def check_size(header: BatchHeader, limits: BatchLimits) -> None:
    """Refuse a batch that is larger than the topic allows."""
    if header.size_bytes > limits.message_bytes_max:
        raise BatchRejected(
            ErrorCode.message_too_large,
            f"batch of {header.size_bytes} bytes, max.message.bytes is {limits.message_bytes_max}",
        )


def open_produced(records: Buffer, position: int, header: BatchHeader, limits: BatchLimits) -> bytes:
    """The decompressed records of a client's batch at `position`; refuses a batch that cannot be
    decompressed, or is too large decompressed.
    """
    try:
        return open_body(records, position, header, size_bytes_max=limits.opened_bytes_max)
    except TooLarge as error:
        raise BatchRejected(
            ErrorCode.message_too_large, f"batch of {header.size_bytes} bytes decompresses to {error}"
        ) from error
    except InvalidBatch as error:
        raise BatchRejected(ErrorCode.invalid_record, f"records cannot be read: {error.reason}") from error


def check_records(body: bytes, header: BatchHeader, limits: BatchLimits, now_ms: int) -> int:
    """Refuse a client's batch because of its records, which `open_produced` decompressed; otherwise
    return their largest timestamp in Unix milliseconds.

    The header's own largest timestamp is not trusted: segments are searched, rolled and deleted by
    it.
    """
    try:
        summary = summarize_records(body, header.record_count)
    except InvalidBatch as error:
        raise BatchRejected(ErrorCode.invalid_record, f"records cannot be read: {error.reason}") from error
    if summary.misplaced_index >= 0:
        raise BatchRejected(
            ErrorCode.invalid_record,
            f"record {summary.misplaced_index} does not have offset delta {summary.misplaced_index}",
        )
    if limits.must_have_keys and summary.keyless_count:
        _reject_records(
            body,
            header,
            ErrorCode.invalid_record,
            lambda record: "a compacted topic accepts no record without a key" if record.key is None else None,
        )
    if not limits.is_log_append_time:
        _check_timestamps(body, header, summary, limits, now_ms)
    # all records may lack a timestamp, and deltas of -1 would give a smaller value
    return max(NO_TIMESTAMP, _timestamp(header, summary.timestamp_delta_max))


def _check_timestamps(
    body: bytes, header: BatchHeader, summary: RecordSummary, limits: BatchLimits, now_ms: int
) -> None:
    # the largest possible limit means no limit: the difference of two timestamps may be larger
    earliest_ms = now_ms - limits.timestamp_before_ms_max if limits.timestamp_before_ms_max < _LONG_MAX else _LONG_MIN
    latest_ms = now_ms + limits.timestamp_after_ms_max
    if (
        _timestamp(header, summary.timestamp_delta_min) >= earliest_ms
        and _timestamp(header, summary.timestamp_delta_max) <= latest_ms
    ):
        return

    def fault(record: Record) -> str | None:
        if record.timestamp_ms == NO_TIMESTAMP or earliest_ms <= record.timestamp_ms <= latest_ms:
            return None
        return f"timestamp {record.timestamp_ms} is not within {earliest_ms} and {latest_ms}"

    _reject_records(body, header, ErrorCode.invalid_timestamp, fault)


def _timestamp(header: BatchHeader, delta_ms: int) -> int:
    """The timestamp of a record. Java adds in 64 bits; a sum beyond them is limited to the bound,
    where the checks refuse it.
    """
    timestamp_ms = header.base_timestamp + delta_ms
    if _LONG_MIN <= timestamp_ms <= _LONG_MAX:
        return timestamp_ms
    return _LONG_MIN if timestamp_ms < 0 else _LONG_MAX


def _reject_records(body: bytes, header: BatchHeader, code: ErrorCode, fault: Callable[[Record], str | None]) -> None:
    """Refuse the batch if any of its records has a fault; each is named by its index (KIP-467)."""
    errors = [
        RecordError(index, message)
        for index, record in enumerate(decode_body(body, header))
        if (message := fault(record)) is not None
    ]
    if errors:
        shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:_SHOWN_ERRORS])
        more = f"; and {len(errors) - _SHOWN_ERRORS} more" if len(errors) > _SHOWN_ERRORS else ""
        raise BatchRejected(code, f"{len(errors)} of {header.record_count} records are refused: {shown}{more}", errors)


def check_continues(header: BatchHeader, *, log_end_offset: int, latest_epoch: int) -> None:
    """Refuse a leader's or a mirror's batch that overlaps the log or goes back to an older leader
    epoch.

    Offsets may leave a hole (compaction). An epoch of -1 is a batch written before epochs were
    known.
    """
    if header.base_offset < log_end_offset:
        raise BatchRejected(
            ErrorCode.offset_out_of_range,
            f"batch {header.base_offset} to {header.last_offset} overlaps the log, which ends at {log_end_offset}",
        )
    if 0 <= header.partition_leader_epoch < latest_epoch:
        raise BatchRejected(
            ErrorCode.fenced_leader_epoch,
            f"batch at {header.base_offset} has leader epoch {header.partition_leader_epoch}, "
            f"the log is at {latest_epoch} already",
        )


def lacks_records(header: BatchHeader, log_end_offset: int) -> bool:
    """True if compaction has removed records before this batch, which follows the log, or in it."""
    return header.base_offset > log_end_offset or header.record_count <= header.last_offset_delta
