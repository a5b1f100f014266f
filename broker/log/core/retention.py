"""Decides which old segments may be deleted, and when a segment is full. Pure: facts about segments
in, a decision out.

Retention by time uses a segment's largest record timestamp, by size the size that would remain, by
log start the offsets that DeleteRecords removed. Segments at or above the high watermark are never
deleted, whatever their age: in-sync replicas may lack their records.

A hold keeps records that a standby lacks beyond the topic's limits, within its own bounds; records
removed by DeleteRecords are never held.

Callers: broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.settings.core.topic_configs import LogConfig

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class SegmentFacts(NamedTuple):
    """The facts about one segment that retention needs."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """The topic's limits; -1 means none. Without `is_deleting` (compacted topics) only the log
    start applies.
    """

    retention_ms: int
    retention_bytes: int
    is_deleting: bool

    @classmethod
    def of(cls, config: LogConfig, *, is_copy: bool) -> RetentionPolicy:
        """The limits of a topic with this configuration; a copy of another site's topic keeps what
        the source keeps.
        """
        return cls(config.retention_ms, config.retention_bytes, config.is_deleted and not is_copy)


class RetentionHold(NamedTuple):
    """Records from an offset on are kept beyond the topic's limits, for a bounded time and size."""

    from_offset: int
    ms_max: int
    bytes_max: int


class HeldSegments(NamedTuple):
    """The part of one log that a hold keeps: bytes beyond the topic's limits, the used share of a
    bound (0 to 1), and the bytes that were deleted although they should be held.
    """

    size_bytes: int = 0
    share: float = 0.0
    given_up_bytes: int = 0


NOTHING_HELD: Final = HeldSegments()


class Held(NamedTuple):
    """The held part of all logs of a broker: their number, their bytes, and the largest share of a
    bound.
    """

    logs: int = 0
    size_bytes: int = 0
    share: float = 0.0

    @classmethod
    def of(cls, found: Iterable[HeldSegments]) -> Held:
        """The sum over all logs."""
        holding = [one for one in found if one.size_bytes]
        share = max((one.share for one in holding), default=0.0)
        return cls(len(holding), sum(one.size_bytes for one in holding), share)


class Expiry(NamedTuple):
    """The number of segments, from the oldest, that may be deleted, the reason for the last of
    them, and the held part.
    """

    segment_count: int
    reason: str
    held: HeldSegments = NOTHING_HELD


def expired_segments(
    segments: Sequence[SegmentFacts],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    hold: RetentionHold | None = None,
) -> Expiry:
    """The longest sequence of oldest segments that some limit allows to delete; the active segment
    only if it has records. `hold` keeps the newest of them.
    """
    # without a limit (-1), the excess is one byte more than everything, and `_expiry_reason`
    # ignores it
    excess_bytes = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    count, reason = 0, ""
    for segment in segments:
        why = _expiry_reason(segment, policy, now_ms, excess_bytes, log_start_offset)
        # an empty segment is the active one: it has nothing to delete
        if not why or segment.next_offset > high_watermark or segment.size_bytes == 0:
            break
        excess_bytes -= segment.size_bytes
        count, reason = count + 1, why
    if hold is None:
        return Expiry(count, reason)
    return _with_hold(segments[:count], reason, policy, hold, now_ms=now_ms, log_start_offset=log_start_offset)


def _with_hold(
    expired: Sequence[SegmentFacts],
    reason: str,
    policy: RetentionPolicy,
    hold: RetentionHold,
    *,
    now_ms: int,
    log_start_offset: int,
) -> Expiry:
    """Hold the newest of these segments, as long as their bytes and the age of the oldest allow."""
    free_below = max(hold.from_offset, log_start_offset)
    free = sum(segment.next_offset <= free_below for segment in expired)
    held_bytes = sum(segment.size_bytes for segment in expired[free:])
    count, given_up_bytes, overdue_ms = free, 0, 0
    for segment in expired[free:]:
        age_ms = now_ms - segment.largest_timestamp_ms
        overdue_ms = max(0, age_ms - policy.retention_ms) if policy.retention_ms >= 0 else 0
        if held_bytes <= hold.bytes_max and overdue_ms <= hold.ms_max:
            break
        count += 1
        held_bytes -= segment.size_bytes
        given_up_bytes += segment.size_bytes
    else:
        overdue_ms = 0
    if given_up_bytes:
        reason = f"{reason}; {given_up_bytes} bytes of it a standby lacks, for which no more may be held"
    share = max(held_bytes / max(hold.bytes_max, 1), overdue_ms / max(hold.ms_max, 1))
    held = HeldSegments(held_bytes, share, given_up_bytes)
    return Expiry(count, reason if count else "", held)


def _expiry_reason(
    segment: SegmentFacts, policy: RetentionPolicy, now_ms: int, excess_bytes: int, log_start_offset: int
) -> str:
    if segment.next_offset <= log_start_offset:
        return f"the segment is below the log start offset {log_start_offset}"
    if not policy.is_deleting:
        return ""
    if 0 <= policy.retention_ms < now_ms - segment.largest_timestamp_ms:
        return (
            f"its newest record has timestamp {segment.largest_timestamp_ms} ms, retention.ms is {policy.retention_ms}"
        )
    if policy.retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
        return f"the log exceeds retention.bytes={policy.retention_bytes} by {excess_bytes} bytes"
    return ""


class RollPolicy(NamedTuple):
    """The topic's limits for one segment; the jitter is already subtracted from `segment_ms`."""

    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: LogConfig, *, jitter: float) -> RollPolicy:
        """The limits of a topic with this configuration; `jitter` between 0 and 1 is the share of
        segment.jitter.ms that is taken off.
        """
        segment_ms = config.segment_ms - int(jitter * min(config.segment_jitter_ms, config.segment_ms))
        if config.is_compacted:
            # the active segment is never compacted: only rolling in time keeps
            # max.compaction.lag.ms
            segment_ms = min(segment_ms, config.compaction_lag_ms_max)
        return cls(config.segment_bytes, segment_ms)


class ActiveSegment(NamedTuple):
    """The facts about the active segment that rolling needs; `first_timestamp_ms` -1 when there is
    none.
    """

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int
    created_ms: int
    is_index_full: bool


def roll_reason(
    segment: ActiveSegment, policy: RollPolicy, *, incoming_bytes: int, last_offset: int, timestamp_ms: int, now_ms: int
) -> str:
    """The reason why a new segment must begin before `incoming_bytes` up to `last_offset` are
    appended; empty when none is needed.
    """
    # an empty segment is rolled for no other reason: the new one would have its name
    if segment.size_bytes == 0:
        return (
            "offsets are too far from the segment's base offset"
            if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            else ""
        )
    if segment.size_bytes + incoming_bytes > policy.segment_bytes:
        return "segment.bytes is reached"
    if segment.is_index_full:
        return "an index is full"
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return "offsets are too far from the segment's base offset"
    # record times, as in Kafka: old records that are written again roll segments as they did before
    if segment.first_timestamp_ms >= 0 and timestamp_ms >= 0:
        waited_ms = timestamp_ms - segment.first_timestamp_ms
    else:
        waited_ms = now_ms - segment.created_ms
    return "segment.ms is reached" if waited_ms > policy.segment_ms else ""
