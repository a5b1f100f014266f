"""A reader's position in a partition, and how answers, errors and new leaders change it. Pure.

A position is the offset of the next record and the leader epoch of the one before it, if known.
With the epoch, a reader detects after a change of leader whether the log that it has read still
exists (KIP-320).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.batches.record_batch import Buffer, iterate_headers
from wire.protocol.ids import NO_EPOCH, NO_OFFSET


class Position(NamedTuple):
    """The next offset to read, and the epoch of the record before it."""

    offset: int
    leader_epoch: int = NO_EPOCH


class ResetPolicy(enum.StrEnum):
    """The action if a partition has no position, or if the log does not have the position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NEAREST = "nearest"
    FAIL = "fail"


_OLD_NAMES: Final = {"smallest": ResetPolicy.EARLIEST, "largest": ResetPolicy.LATEST, "none": ResetPolicy.FAIL}


def parse_reset_policy(text: str) -> ResetPolicy:
    """A policy by its name, the old consumer's names included. ValueError names the
    accepted ones.
    """
    if text in _OLD_NAMES:
        return _OLD_NAMES[text]
    try:
        return ResetPolicy(text)
    except ValueError as error:
        accepted = ", ".join([*ResetPolicy, *_OLD_NAMES])
        raise ValueError(f"{text!r} is not a reset policy: accepted are {accepted}") from error


class PositionLost(Exception):
    """The log does not have the position, and the policy is to fail."""


class LogTruncated(PositionLost):
    """The leader's log does not have records that were read (KIP-320); `diverges_at` is the first
    that may differ, None if unknown.
    """

    def __init__(self, place: tuple[str, int], position: Position, diverges_at: int | None) -> None:
        where = "an unknown offset" if diverges_at is None else f"offset {diverges_at}"
        super().__init__(
            f"{place[0]}-{place[1]} was truncated below the read position (offset {position.offset} of epoch "
            f"{position.leader_epoch}): the logs differ from {where} on"
        )
        self.diverges_at = diverges_at


class NoWholeBatch(Exception):
    """An answer with bytes but without a whole batch: the batch is larger than the fetch size, and
    the broker is an old one.
    """


class Taken(NamedTuple):
    """The new part of a response: the bytes from `start` to `end`, which hold at most
    `record_count` records, and the position after them.
    """

    start: int
    end: int
    record_count: int
    max_timestamp: int
    next: Position


def take(records: Buffer, position: Position) -> Taken | None:
    """The whole batches that contain the position or are after it; None if there are none.
    InvalidBatch, NoWholeBatch.

    The first batch may begin below the position, since brokers answer whole batches: readers of
    records skip those below it.
    """
    start = end = count = 0
    max_timestamp = -1
    next_position = position
    is_any = False
    for at, header in iterate_headers(records, may_end_in_partial=True):
        is_any = True
        end = at + header.size_bytes
        if header.next_offset <= position.offset:
            start = end
            continue
        count += header.record_count
        max_timestamp = max(max_timestamp, header.max_timestamp)
        next_position = Position(header.next_offset, header.partition_leader_epoch)
    if len(records) and not is_any:
        raise NoWholeBatch(f"{len(records)} bytes at offset {position.offset} hold no whole batch")
    return Taken(start, end, count, max_timestamp, next_position) if next_position != position else None


def diverges_at(position: Position, *, epoch: int, end_offset: int) -> int | None:
    """The offset from which on the log differs from the records that were read, by the leader's
    answer for the position's epoch. NO_OFFSET if the leader does not know the epoch; None if
    nothing differs.
    """
    if epoch < 0 or end_offset < 0:
        return NO_OFFSET
    return end_offset if end_offset < position.offset else None


def resolve(policy: ResetPolicy, offset: int | None, *, log_start: int, log_end: int) -> int | None:
    """The offset at which to continue; None if the policy is to fail. `offset` is the missing one,
    None if there was none.
    """
    match policy:
        case ResetPolicy.EARLIEST:
            return log_start
        case ResetPolicy.LATEST:
            return log_end
        case ResetPolicy.NEAREST:
            return log_start if offset is None else min(max(offset, log_start), log_end)
        case ResetPolicy.FAIL:
            return None


class Trouble(enum.Enum):
    """The action that an error code of a partition's fetch requires of the reader."""

    NONE = "none"
    MOVED = "look for the leader again"
    OUT_OF_RANGE = "the position is not in the log"
    PASSING = "ask again"
    CORRUPT = "the log is damaged there"
    REFUSED = "report to the application"


_MOVED: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.leader_not_available,
        # a broker with outdated metadata answers these too, so the topic may well exist
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)


def trouble_of(code: ErrorCode) -> Trouble:
    """Map a partition's error code to the reader's action."""
    if not code:
        return Trouble.NONE
    if code in _MOVED:
        return Trouble.MOVED
    if code is ErrorCode.offset_out_of_range:
        return Trouble.OUT_OF_RANGE
    # Kafka calls CORRUPT_MESSAGE retriable, but a log that is damaged stays damaged
    if code is ErrorCode.unknown_server_error or code.retriable:
        return Trouble.PASSING if code is not ErrorCode.corrupt_message else Trouble.CORRUPT
    return Trouble.REFUSED
