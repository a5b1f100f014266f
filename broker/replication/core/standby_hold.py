"""A partition of a sync link at the active site: the requests that wait for the standby, and for
how long. Pure.

Under a sync link the standby counts like one more in-sync replica: the high watermark does not pass
the offset that the standby acknowledged. So acks=all is answered, and consumers see a record, only
when both sites have it. A link that may degrade stops waiting when records wait and the standby
acknowledges nothing for the timeout. It waits again once the standby has caught up, and counts as
degraded until the standby has all records that became visible without it. There is one object for
each leadership.

A standby has caught up when it has everything, or soon has the records of an earlier moment: while
records arrive it is always some round trips behind.

Under a lease the arbiter is informed first: a hold that `needs_mark` gives up only when its broker
is marked out of sync there (`is_marked`), so that the standby is not promoted automatically while
it may lack acknowledged records. While the arbiter does not answer, such a link waits as under
`block`.

A hold that is `released` from the start belongs to a site that was promoted after the other one was
lost (`dr/sites/core/sync_policies.py` writes such a record): it skips the first timeout. A later
change of the policy affects only what follows: the hold stays as it is until the standby answers or
its timeout ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CAUGHT_UP_WITHIN_MS: Final = 2_000
"""Lag (ms) of a standby below which producers begin to wait for it again. It bounds their first
wait.
"""


@dataclass(slots=True)
class StandbyHold:
    """The state of a link's standby, as a leader knows it."""

    may_degrade: bool
    timeout_ms: float
    progressed_at_ms: float
    acknowledged: int = -1
    """The standby has every record below this offset; -1 while it has not reported to this
    leader.
    """
    is_holding: bool = True
    is_degraded: bool = False
    """Records have become visible, or were acknowledged, that the standby may not have."""
    noted_end: int = -1
    """The offset that the standby must reach before producers wait for it again; -1 until it
    reports after it was given up.
    """
    noted_at_ms: float = 0.0
    needs_mark: bool = False
    is_marked: bool = False
    is_waiting_for_mark: bool = False
    """The standby has not reported for too long, and only the mark is missing."""

    @classmethod
    def released(cls, *, may_degrade: bool, timeout_ms: float, now_ms: float) -> StandbyHold:
        """A hold whose standby is known to be lost: nothing waits before the standby returns."""
        return cls(
            may_degrade=may_degrade,
            timeout_ms=timeout_ms,
            progressed_at_ms=now_ms,
            is_holding=False,
            is_degraded=True,
            is_marked=True,
        )

    def follow_policy(self, *, may_degrade: bool, timeout_ms: float) -> None:
        """Apply the link's new policy; the time without reports counts from the standby's last
        report, not from now.
        """
        self.may_degrade = may_degrade
        self.timeout_ms = timeout_ms

    def note_mark(self, *, is_marked: bool) -> None:
        """The arbiter has a mark for this broker from here on, or has none any more: without one
        acknowledgements wait for the standby again.
        """
        self.is_marked = is_marked
        if self.needs_mark and not is_marked:
            self.is_holding = True

    @property
    def wants_mark(self) -> bool:
        """True while the arbiter must get a mark: the hold waits for it, or the standby lacks
        records that were acknowledged before the link waited for it.
        """
        is_behind = self.is_degraded and self.is_holding
        return self.needs_mark and not self.is_marked and (self.is_waiting_for_mark or is_behind)

    @property
    def bound(self) -> int | None:
        """The offset that the high watermark may not pass; None while nothing waits for the
        standby.
        """
        return self.acknowledged if self.is_holding else None

    def is_behind(self, high_watermark: int) -> bool:
        """True while the standby lacks visible records, or has not reported yet."""
        return self.is_degraded or self.acknowledged < high_watermark

    @property
    def wants_report(self) -> bool:
        """True while the hold depends on a report that says nothing new: the first one, and the
        next ones after the standby was given up.
        """
        return self.acknowledged < 0 or self.is_degraded or not self.is_holding

    def begin_checks(self, *, now_ms: float) -> None:
        """The first record since `needs_checks` was false has arrived: the time without reports
        begins.
        """
        self.progressed_at_ms = now_ms

    def needs_checks(self, *, high_watermark: int, mirrorable_end: int) -> bool:
        """True while time changes the hold, so that `check` must be called regularly."""
        return (self.is_holding and high_watermark < mirrorable_end) or self.wants_mark

    def report(self, acknowledged: int, *, high_watermark: int, mirrorable_end: int, now_ms: float) -> None:
        """The standby has everything below `acknowledged`."""
        if acknowledged > self.acknowledged:
            self.acknowledged = acknowledged
            self.progressed_at_ms = now_ms
        # `noted_end` first: the records of the last report must have arrived before the lag counts
        if not self.is_holding and self.noted_end <= self.acknowledged:
            has_caught_up = self.acknowledged >= mirrorable_end or now_ms - self.noted_at_ms <= CAUGHT_UP_WITHIN_MS
            # -1: the first report after the standby was given up only sets the goal
            self.is_holding = self.noted_end >= 0 and has_caught_up
            self.noted_end, self.noted_at_ms = mirrorable_end, now_ms
            # the standby gets the whole timeout from here, although it has just been silent
            self.progressed_at_ms = now_ms
        # Degraded until here: a failover would still lose records that became visible without the
        # standby.
        if self.is_holding and self.acknowledged >= high_watermark:
            self.is_degraded = False

    def check(self, *, high_watermark: int, mirrorable_end: int, now_ms: float) -> bool:
        """True if the hold is given up now, because the standby has not reported for too long."""
        self.is_waiting_for_mark = False
        if high_watermark >= mirrorable_end or not self.is_holding:
            # nothing waits: the time without reports begins with the next record
            self.progressed_at_ms = now_ms
            return False
        if not self.may_degrade or now_ms - self.progressed_at_ms < self.timeout_ms:
            return False
        # without the mark the arbiter could promote a standby that lacks acknowledged records
        if self.needs_mark and not self.is_marked:
            self.is_waiting_for_mark = True
            return False
        self.is_holding = False
        self.is_degraded = True
        # the goal counts from the standby's next report, not from one before it was lost
        self.noted_end = -1
        return True
