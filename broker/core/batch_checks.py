"""What a leader and a follower demand of a record batch before it may enter a log. Pure; works on headers alone.

The structure of a header (lengths, counts, magic) is checked by wire/record_batch.py while it is read; here are the rules
that depend on who sends the batch and on the topic. Records stay closed, except where the topic is compacted and each must have a
key. The timestamp bounds of KIP-937 are applied to the batch's first and largest timestamp, which include every violation by the largest.

Callers: broker/log/partition_log.py; the produce path turns `BatchRejected.code` into the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from broker.core.topic_configs import LogConfig
from wire.record_batch import BatchHeader, Buffer, InvalidBatch
from wire.records import open_body, read_keys

_CODEC_MAX: Final = 4


class BatchRejected(Exception):
    """A batch the log will not take: the Kafka error code for the client, and the reason in words."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The topic's rules for what producers send."""

    message_bytes_max: int
    is_log_append_time: bool
    must_have_keys: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int

    @classmethod
    def of(cls, config: LogConfig) -> BatchLimits:
        """The limits of a topic with this configuration."""
        return cls(
            message_bytes_max=config.message_bytes_max,
            is_log_append_time=config.is_log_append_time,
            must_have_keys=config.is_compacted,
            timestamp_before_ms_max=config.timestamp_before_ms_max,
            timestamp_after_ms_max=config.timestamp_after_ms_max,
        )


def check_produced(header: BatchHeader, limits: BatchLimits, now_ms: int) -> None:
    """Refuse a client's batch that breaks the topic's limits; the CRC is the caller's to check."""
    if header.batch_length + 12 > limits.message_bytes_max:
        raise BatchRejected(
            ErrorCode.message_too_large,
            f"batch of {header.size_bytes} bytes, max.message.bytes is {limits.message_bytes_max}",
        )
    attributes = header.attributes
    if attributes & 0x07 > _CODEC_MAX:
        raise BatchRejected(ErrorCode.unsupported_compression_type, f"unknown compression codec {attributes & 7}")
    if header.record_count == 0:
        raise BatchRejected(ErrorCode.invalid_record, "batch without records")
    if attributes & 0x20:
        raise BatchRejected(ErrorCode.invalid_record, "clients may not write control batches")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise BatchRejected(
                ErrorCode.invalid_record,
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}",
            )
    elif attributes & 0x10:
        raise BatchRejected(ErrorCode.invalid_record, "transactional batch without a producer id")
    if not limits.is_log_append_time:
        _check_timestamps(header, limits, now_ms)


def check_keys(records: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse a client's batch at `position` for a compacted topic when a record has no key: compaction would drop it."""
    keys: dict[bytes | None, int] = {}
    try:
        body = open_body(records, position, header)
        read_keys(body, 0, len(body), header.record_count, 0, keys)
    except InvalidBatch as error:
        raise BatchRejected(ErrorCode.invalid_record, f"records cannot be read: {error}") from error
    if None in keys:
        raise BatchRejected(ErrorCode.invalid_record, "a compacted topic takes no record without a key")


def _check_timestamps(header: BatchHeader, limits: BatchLimits, now_ms: int) -> None:
    if header.attributes & 0x08:
        raise BatchRejected(ErrorCode.invalid_timestamp, "producers may not set the timestamp type to LogAppendTime")
    earliest_ms = now_ms - limits.timestamp_before_ms_max
    latest_ms = now_ms + limits.timestamp_after_ms_max
    if header.max_timestamp > latest_ms or 0 <= header.base_timestamp < earliest_ms:
        raise BatchRejected(
            ErrorCode.invalid_timestamp,
            f"timestamps {header.base_timestamp} to {header.max_timestamp} lie outside {earliest_ms} to {latest_ms}",
        )


def check_continues(header: BatchHeader, *, log_end_offset: int, latest_epoch: int) -> None:
    """Refuse a leader's or a mirror's batch that overlaps the log or goes back to an older leader epoch.

    Offsets may leave a hole (compaction). An epoch of -1 is a batch written before epochs were known.
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
