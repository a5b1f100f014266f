"""The quiet rounds of a fetcher, in which its source has no new records of some partitions. Their
flows share one object, and read it only before their next decision.
"""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """One moment by both clocks: the wall clock, which may be set, and the monotonic clock."""

    at_ms: int
    monotonic_ms: float


class QuietRounds:
    """The rounds of one fetcher in which its source had nothing new of the partitions that share
    this object: so thousands of idle flows learn that the source answers without a command for
    each.
    """

    __slots__ = ("answered", "asked")

    def __init__(self, moment: Moment) -> None:
        self.asked = moment
        """When the last answered request was sent."""
        self.answered = moment
        """When its answer arrived."""
