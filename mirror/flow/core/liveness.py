"""Decides whether each partition advances, and whether it falls behind, from its ends alone: the
status that its state and its workers report does not count. Pure.

A partition is stalled when for `stall_ms` nothing has arrived at the target although the source has
more, or when the partition got no answer for that long from a source that does answer. States that
need a person, or that a person set, are not judged.

Against a stall without retries, first the flow is started anew, later its workers are replaced; the
time between two remedies doubles, so that a transfer that is only slow can complete. A flow that
retries (its target refuses batches for now, its leader moves) has its reason and needs no remedy.

A partition falls behind when its lag grows over a sliding window of looks, although it advances. No
threshold is involved, so the same rule fits every topic. The rule is that of the consumer lag
checker Burrow: a window with a lag of zero is good, and a window in which the lag never shrinks,
and grows, is a warning.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from wire.protocol.ids import UNKNOWN, TopicPartition

_MUST_MOVE: Final = frozenset(
    {FlowState.PREPARING, FlowState.MIRRORING, FlowState.SOURCE_UNAVAILABLE, FlowState.PROMOTING, FlowState.REVERSING}
)
_ASKING: Final = frozenset({Step.SETTLING, Step.FINDING_TARGET, Step.CHECKING_SOURCE})
DOUBLINGS_MAX: Final = 7
LOOKS: Final = 10
"""The looks of a window, as in Burrow."""


class Remedy(enum.Enum):
    """The reaction to a stall."""

    NONE = "none"
    RESTART = "restart"
    REPLACE_WORKERS = "replace workers"


@dataclass(slots=True)
class _Seen:
    end: int
    end_since_ms: float
    trying: tuple[int, int, Step]
    trying_since_ms: float
    remedies: int = 0
    remedied_at_ms: float = 0.0


class Liveness:
    """The progress of all partitions of a mirror: call `see` regularly and `judge` for suspected
    partitions.
    """

    def __init__(self, *, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._seen: dict[TopicPartition, _Seen] = {}
        self._stalled_since_ms: dict[TopicPartition, float] = {}

    @property
    def stalled_since_ms(self) -> Mapping[TopicPartition, float]:
        """Partitions that do not move, and since when (the clock of `see`)."""
        return self._stalled_since_ms

    def see(self, key: TopicPartition, facts: FlowFacts, *, received_ms_ago: float, now_ms: float) -> bool:
        """True if the partition is suspected of a stall; the mirror then asks the source for its
        end.
        """
        if facts.state not in _MUST_MOVE or facts.waits_for_topic:
            self.forget(key)
            return False
        progress = facts.progress
        trying = (facts.generation, facts.attempts, facts.step)
        seen = self._seen.get(key)
        if seen is None or progress.target_log_end_offset != seen.end:
            self.forget(key)
            self._seen[key] = _Seen(progress.target_log_end_offset, now_ms, trying, now_ms)
            return False
        if trying != seen.trying:
            seen.trying, seen.trying_since_ms = trying, now_ms
        is_answered = progress.source_high_watermark != UNKNOWN and received_ms_ago < self._stall_ms
        # A source without new records is no stall, but only a recent answer proves that it has
        # none.
        if is_answered and progress.source_high_watermark <= progress.target_log_end_offset:
            seen.end_since_ms, seen.remedies = now_ms, 0
            self._stalled_since_ms.pop(key, None)
            return False
        return now_ms - seen.end_since_ms >= self._stall_ms

    def judge(self, key: TopicPartition, facts: FlowFacts, *, is_congested: bool, now_ms: float) -> Remedy:
        """The source answers, and has more or did not answer for this partition: the partition is
        stalled. While all partitions wait for bytes or memory, nothing is done.
        """
        seen = self._seen[key]
        self._stalled_since_ms.setdefault(key, seen.end_since_ms)
        # A flow that waits for its next attempt continues by itself.
        is_hanging = now_ms - seen.trying_since_ms >= self._stall_ms and (
            facts.step in _ASKING or (facts.step is Step.STREAMING and facts.state is not FlowState.PREPARING)
        )
        # Each remedy gets twice the time of the one before: a slow target is not a stall, and a
        # restart fetches the batches in flight again.
        since_ms = max(seen.end_since_ms, seen.remedied_at_ms)
        throttle_time_ms = self._stall_ms * 2 ** min(seen.remedies + 1, DOUBLINGS_MAX)
        if not is_hanging or is_congested or now_ms - since_ms < throttle_time_ms:
            return Remedy.NONE
        seen.remedies += 1
        seen.remedied_at_ms = now_ms
        return Remedy.RESTART if seen.remedies == 1 else Remedy.REPLACE_WORKERS

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that makes progress, or that needs to make none."""
        self._seen.pop(key, None)
        self._stalled_since_ms.pop(key, None)

    def keep(self, keys: frozenset[TopicPartition]) -> None:
        """Forget all but these."""
        for key in self._seen.keys() - keys:
            self.forget(key)


class _Look(NamedTuple):
    """What was seen of a partition at one time (ms)."""

    target_end: int
    lag_records: int
    at_ms: float


class LagGrowth(NamedTuple):
    """The lag in records at the beginning and at the end of a window, and its length."""

    records_before: int
    records: int
    for_ms: int


class LagWindows:
    """The windows of the partitions that have a lag. Call `see` at each look, then `keep`."""

    def __init__(self) -> None:
        self._windows: dict[TopicPartition, deque[_Look]] = {}

    def see(self, key: TopicPartition, *, target_end: int, source_end: int, now_ms: float) -> None:
        """Note the ends of a partition that is mirrored."""
        lag = source_end - target_end
        if UNKNOWN in (source_end, target_end) or lag <= 0:
            self._windows.pop(key, None)
            return
        window = self._windows.get(key)
        if window is None or target_end < window[-1].target_end:  # a log that was truncated begins anew
            window = self._windows[key] = deque(maxlen=LOOKS)
        window.append(_Look(target_end, lag, now_ms))

    def keep(self, keys: AbstractSet[TopicPartition]) -> None:
        """Forget all partitions but these."""
        for key in self._windows.keys() - keys:
            del self._windows[key]

    def falling_behind(self) -> dict[TopicPartition, LagGrowth]:
        """The partitions that fall behind."""
        return {key: growth for key, window in self._windows.items() if (growth := _growth(window)) is not None}


def _growth(window: deque[_Look]) -> LagGrowth | None:
    first, last = window[0], window[-1]
    if len(window) < LOOKS or last.lag_records <= first.lag_records or last.target_end == first.target_end:
        return None
    if any(after.lag_records < before.lag_records for before, after in pairwise(window)):
        return None
    return LagGrowth(first.lag_records, last.lag_records, round(last.at_ms - first.at_ms))
