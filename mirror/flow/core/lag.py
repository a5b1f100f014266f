"""Measures how far a partition's mirror is behind, in records, bytes and milliseconds.

A number is never zero because something failed: when the source has not answered recently, the time
lag grows from the last moment at which the mirror certainly had everything, and a record lag of
zero becomes unknown (-1).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from wire.protocol.ids import UNKNOWN


class Progress(Struct, frozen=True):
    """The mirror's knowledge of one partition's two ends. Times are Unix ms."""

    source_high_watermark: int = UNKNOWN
    source_answered_at_ms: int = UNKNOWN
    # When the high watermark was requested: records that arrived later need not be included,
    # however late the answer came.
    source_asked_at_ms: int = UNKNOWN
    target_log_end_offset: int = UNKNOWN
    # The last moment for which the target certainly has all of the source's records.
    caught_up_at_ms: int = UNKNOWN
    # An earlier observation of the source's high watermark that the target has not reached yet.
    marker_offset: int = UNKNOWN
    marker_at_ms: int = UNKNOWN
    started_at_ms: int = 0
    mirrored_timestamp_ms: int = UNKNOWN
    mirrored_bytes: int = 0
    mirrored_records: int = 0
    # Records that a translate link skips: aborted ones, markers, and records that came from its
    # target.
    skipped_bytes: int = 0
    skipped_records: int = 0

    @property
    def has_all(self) -> bool:
        """True if the target has all records that the source had at its last answer."""
        return 0 <= self.source_high_watermark <= self.target_log_end_offset

    @property
    def moved_bytes(self) -> int:
        """The bytes that reached the target or were skipped."""
        return self.mirrored_bytes + self.skipped_bytes


class Lag(Struct, frozen=True, kw_only=True):
    """The distance behind the source; -1 where it is unknown."""

    records: int
    bytes: int
    ms: int


def next_marker(progress: Progress) -> tuple[int, int, int]:
    """(caught_up_at_ms, marker_offset, marker_at_ms) after an end moved.

    One marker at a time is enough: when the target passes it, everything up to its moment is known
    to be mirrored, and the newest observation becomes the next marker. So the time lag is late by
    at most one such round.
    """
    caught_up_at_ms, marker_offset, marker_at_ms = (
        progress.caught_up_at_ms,
        progress.marker_offset,
        progress.marker_at_ms,
    )
    if progress.source_high_watermark == UNKNOWN or progress.target_log_end_offset == UNKNOWN:
        return caught_up_at_ms, marker_offset, marker_at_ms
    if progress.target_log_end_offset >= progress.source_high_watermark:
        return max(caught_up_at_ms, progress.source_asked_at_ms), UNKNOWN, UNKNOWN
    if marker_offset == UNKNOWN:
        return caught_up_at_ms, progress.source_high_watermark, progress.source_asked_at_ms
    if progress.target_log_end_offset >= marker_offset:
        return max(caught_up_at_ms, marker_at_ms), progress.source_high_watermark, progress.source_asked_at_ms
    return caught_up_at_ms, marker_offset, marker_at_ms


def moved(progress: Progress, **changes: int) -> Progress:
    """A copy with changed ends, and the marker that follows from them."""
    changed = replace(progress, **changes)
    caught_up_at_ms, marker_offset, marker_at_ms = next_marker(changed)
    return replace(changed, caught_up_at_ms=caught_up_at_ms, marker_offset=marker_offset, marker_at_ms=marker_at_ms)


def received(progress: Progress, high_watermark: int, asked_at_ms: int, now_ms: int) -> Progress:
    """The source reported its log's end in answer to a request sent at `asked_at_ms`;
    `high_watermark` is UNKNOWN if the end is unknown now.
    """
    return moved(
        progress,
        source_high_watermark=high_watermark,
        source_answered_at_ms=now_ms,
        source_asked_at_ms=now_ms if asked_at_ms == UNKNOWN else asked_at_ms,
    )


def without_ends(progress: Progress) -> Progress:
    """Both ends are unknown without a copy; mirrored records stay counted, and the time lag
    continues.
    """
    unknown = {"source_high_watermark": UNKNOWN, "source_answered_at_ms": UNKNOWN, "source_asked_at_ms": UNKNOWN}
    return replace(progress, **unknown, target_log_end_offset=UNKNOWN, marker_offset=UNKNOWN, marker_at_ms=UNKNOWN)


def put_back(progress: Progress, by_ms: int) -> Progress:
    """The same moments on a clock that was set back."""
    noted = {
        "source_answered_at_ms": progress.source_answered_at_ms,
        "source_asked_at_ms": progress.source_asked_at_ms,
        "caught_up_at_ms": progress.caught_up_at_ms,
        "marker_at_ms": progress.marker_at_ms,
    }
    earlier = {name: at_ms - by_ms for name, at_ms in noted.items() if at_ms != UNKNOWN}
    return replace(progress, **earlier, started_at_ms=progress.started_at_ms - by_ms)


def complete_until_ms(progress: Progress) -> int:
    """The last moment (Unix ms) up to which the target has all of the source's records; UNKNOWN if
    there is none yet. During a first catch-up it is the time of the newest mirrored record: a later
    record with an earlier time counts as late. A time after the start proves nothing.
    """
    if progress.caught_up_at_ms != UNKNOWN:
        return progress.caught_up_at_ms
    return progress.mirrored_timestamp_ms if 0 < progress.mirrored_timestamp_ms < progress.started_at_ms else UNKNOWN


def measure(progress: Progress, *, now_ms: int, stale_after_ms: int) -> Lag:
    """The lag at `now_ms`; `stale_after_ms` is the longest silence of a healthy source (a long poll
    and some).
    """
    is_known = progress.source_high_watermark != UNKNOWN and progress.target_log_end_offset != UNKNOWN
    is_stale = not is_known or now_ms - progress.source_answered_at_ms > stale_after_ms
    records = max(0, progress.source_high_watermark - progress.target_log_end_offset) if is_known else UNKNOWN
    if records == 0 and is_stale:
        records = UNKNOWN
    if records == 0:
        return Lag(records=0, bytes=0, ms=0)
    return Lag(records=records, bytes=_lag_bytes(records, progress), ms=_lag_ms(progress, now_ms))


def _lag_bytes(records: int, progress: Progress) -> int:
    if records == UNKNOWN or progress.mirrored_records == 0:
        return UNKNOWN
    return records * progress.mirrored_bytes // progress.mirrored_records


def _lag_ms(progress: Progress, now_ms: int) -> int:
    # Never caught up since the start, and the times of the records are of no use.
    complete_ms = complete_until_ms(progress)
    return max(0, now_ms - (progress.started_at_ms if complete_ms == UNKNOWN else complete_ms))
