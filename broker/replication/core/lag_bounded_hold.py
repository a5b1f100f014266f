"""A partition of a link with the sync policy `bound`: acknowledgements wait when the standby is too
far behind. Pure.

The standby may lack records younger than `bound_ms`, so a failover loses at most these among the
records acknowledged with acks=all. What the leader does depends on the standby's lag:

* up to half of the bound, nothing waits;
* above half, each record waits for as long as the lag exceeds that half before it becomes visible,
  so that producers with a bounded number of requests in flight slow down by themselves;
* beyond the bound, only records that the standby has become visible.

The age of a record is not in the log (producers set times), so the leader stores the log end at
each check (`check`, every 100 ms), and a record counts as old as the check before it. A new leader
does not know the standby's lag, so it holds acknowledgements until the standby has reported.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.replication.core.standby_hold import StandbyHold

MARKS_MAX = 128
"""The bound is divided into so many steps."""


class _Mark(NamedTuple):
    """Records below `end`, and not below an earlier mark, are at least as old as `born_at_ms`."""

    born_at_ms: float
    end: int


@dataclass(slots=True)
class LagBoundedHold(StandbyHold):
    """What waits for the standby in one partition. `limited_ms` counts for how long
    acknowledgements were throttled or held.
    """

    bound_ms: float = 0.0
    limit: int | None = None
    lag_ms: float = 0.0
    limited_ms: float = 0.0
    looked_at_ms: float = -1.0
    first_end: int = -1
    """The log end at the first look, below which records are of an unknown age; -1 before it."""
    _marks: deque[_Mark] = field(default_factory=deque)

    @property
    def bound(self) -> int | None:
        """The offset that the high watermark may not pass now; None while nothing waits."""
        # -1: the standby has not reported to this leader, and its lag is not known
        return self.acknowledged if not self.may_degrade or self.acknowledged < 0 else self.limit

    @property
    def is_held(self) -> bool:
        """True while acknowledgements wait for the standby itself."""
        return self.bound is not None and self.bound <= self.acknowledged

    def is_behind(self, high_watermark: int) -> bool:
        """True while the standby lacks visible records that are older than the bound, or may be:
        producers that never pause keep it some records behind.
        """
        if self.acknowledged >= high_watermark:
            return False
        return self.first_end < 0 or self.acknowledged < self.first_end or self.lag_ms > self.bound_ms

    def begin_checks(self, *, now_ms: float) -> None:
        """The first record since `needs_checks` was false has arrived: it is not older than
        this.
        """
        self.looked_at_ms = now_ms

    def needs_checks(self, *, high_watermark: int, mirrorable_end: int) -> bool:  # noqa: ARG002  as in the other hold
        """True while the standby lacks a record that was there at the last check, or has not
        reported.
        """
        return bool(self._marks) or self.limit is not None or self.acknowledged < mirrorable_end

    def report(self, acknowledged: int, *, high_watermark: int, mirrorable_end: int, now_ms: float) -> None:  # noqa: ARG002  as in the other hold
        """The standby has everything below `acknowledged`."""
        self.acknowledged = max(self.acknowledged, acknowledged)
        self._look(mirrorable_end, now_ms)

    def check(self, *, high_watermark: int, mirrorable_end: int, now_ms: float) -> bool:  # noqa: ARG002  as in the other hold
        """Move the bound with the clock. Always False: this kind of hold never gives up its
        standby.
        """
        self._look(mirrorable_end, now_ms)
        return False

    def _look(self, mirrorable_end: int, now_ms: float) -> None:
        before_ms = self.progressed_at_ms if self.looked_at_ms < 0 else self.looked_at_ms
        if self.first_end < 0:
            self.first_end = mirrorable_end
        if self.limit is not None:
            self.limited_ms += now_ms - before_ms
        # the time of the previous check: a record may count as older than it is, never as younger
        self._note_end(mirrorable_end, before_ms)
        self.looked_at_ms = now_ms
        while self._marks and self._marks[0].end <= self.acknowledged:
            self._marks.popleft()
        self.lag_ms = now_ms - self._marks[0].born_at_ms if self._marks else 0.0
        self.limit = self._limit(now_ms)

    def _note_end(self, end: int, born_at_ms: float) -> None:
        if end <= (self._marks[-1].end if self._marks else self.acknowledged):
            return
        # a mark covers a step of the bound, or a busy partition would make one for each check
        if self._marks and born_at_ms - self._marks[-1].born_at_ms < self.bound_ms / MARKS_MAX:
            self._marks[-1] = _Mark(self._marks[-1].born_at_ms, end)
        else:
            self._marks.append(_Mark(born_at_ms, end))

    def _limit(self, now_ms: float) -> int | None:
        delay_ms = self.lag_ms - self.bound_ms / 2
        if delay_ms <= 0:
            return None
        # beyond the bound, only records that the standby has: this is the promise of the policy
        if self.lag_ms > self.bound_ms:
            return self.acknowledged
        old_enough = (mark.end for mark in self._marks if now_ms - mark.born_at_ms >= delay_ms)
        return max(old_enough, default=self.acknowledged)
