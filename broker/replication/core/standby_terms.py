"""The terms of a sync link for the leaders of its partitions, and the hold that follows from them.
Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.core.lag_bounded_hold import LagBoundedHold
from broker.replication.core.standby_hold import StandbyHold


class StandbyTerms(NamedTuple):
    """The requirements of a sync link for the leaders of its partitions at the active site."""

    may_degrade: bool
    timeout_ms: float
    lag_bound_ms: float = 0.0
    """Lag of the standby that the sync policy `bound` allows; 0 under the other policies."""
    begins_released: bool = False
    """The standby is known to be lost when the leadership begins."""
    needs_mark: bool = False
    is_marked: bool = False
    needs_former: bool = False
    """The site has no permit: a hold continues, so that no more records become visible at this site
    alone, and no hold begins.
    """


def hold_by_terms(
    hold: StandbyHold | None, terms: StandbyTerms, *, now_ms: float, has_acknowledged_alone: bool = False
) -> StandbyHold | None:
    """The hold of a leadership under these terms of its link: the same one, a new one, or none.
    `has_acknowledged_alone`: the leadership has acknowledged records without a hold.
    """
    if hold is None and terms.needs_former:
        return None
    # a bound needs another kind of hold; the standby's acknowledged offset is copied to it
    if hold is None or isinstance(hold, LagBoundedHold) is not bool(terms.lag_bound_ms):
        former, hold = hold, _new_hold(terms, -1 if hold is None else hold.acknowledged, now_ms=now_ms)
        # until the standby has reported them, it may lack records that it was not waited for
        if not isinstance(hold, LagBoundedHold):
            hold.is_degraded = hold.is_degraded or has_acknowledged_alone or former is not None
    hold.follow_policy(may_degrade=terms.may_degrade, timeout_ms=terms.timeout_ms)
    if isinstance(hold, LagBoundedHold):
        hold.bound_ms = terms.lag_bound_ms
    hold.needs_mark = terms.needs_mark
    # a mark that the arbiter has set stays valid for this hold until it is cleared there
    hold.is_marked = hold.is_marked or terms.is_marked
    return hold


def _new_hold(terms: StandbyTerms, acknowledged: int, *, now_ms: float) -> StandbyHold:
    may_degrade, timeout_ms = terms.may_degrade, terms.timeout_ms
    if terms.lag_bound_ms:
        return LagBoundedHold(
            may_degrade=may_degrade,
            timeout_ms=timeout_ms,
            progressed_at_ms=now_ms,
            acknowledged=acknowledged,
            bound_ms=terms.lag_bound_ms,
        )
    if terms.begins_released:
        return StandbyHold.released(may_degrade=may_degrade, timeout_ms=timeout_ms, now_ms=now_ms)
    return StandbyHold(may_degrade=may_degrade, timeout_ms=timeout_ms, progressed_at_ms=now_ms)
