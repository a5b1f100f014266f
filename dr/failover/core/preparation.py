"""The conditions of a planned failover that must hold before it stops writers, so that the stop is
short. Pure; caller: `playbook.py`.

A mirror into the target lives, every partition of the source has a leader, no copy has another
history, and the copies follow closely: the mirror brings what the source takes within a part of the
time for which writers may be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dr.failover.core.completion import Completion, leaderless_sentence
from dr.failover.core.refusals import named_unprotected
from dr.failover.core.steps import Decision, FailoverPolicy, Step, refuse
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.mirror_reports import MIRROR_SILENT_MS
from wire.protocol.ids import UNKNOWN, TopicPartition

OBSTACLE_AWAITED_MS = MIRROR_SILENT_MS
"""Time (ms) in which a failover waits for a missing mirror or leader: a mirror reports each second,
an election takes moments.
"""
CLOSE_SHARE = 0.5
"""The share of the time for which writers may be stopped: a copy that follows within this share is
close enough.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    ends: Mapping[TopicPartition, int]
    at_ms: int


class CatchUp:
    """The time that the copies take to reach the source's earlier ends."""

    def __init__(self) -> None:
        self._mark: _Mark | None = None
        self._delay_ms: int | None = None

    def observe(self, here: Mapping[TopicPartition, int], source: Mapping[TopicPartition, int], now_ms: int) -> None:
        """The safe ends of the copies, and the ends of the source, which was asked after them."""
        if _has_reached(here, source):
            self._mark, self._delay_ms = None, 0
            return
        if self._mark is not None and _has_reached(here, self._mark.ends):
            self._delay_ms = now_ms - self._mark.at_ms
            self._mark = None
        if self._mark is None:
            self._mark = _Mark(ends=dict(source), at_ms=now_ms)

    def is_close(self, *, within_ms: float, now_ms: int) -> bool:
        """True when the copies reached the source's ends in that time when last measured, and are
        not late again.
        """
        is_late = self._mark is not None and now_ms - self._mark.at_ms > within_ms
        return self._delay_ms is not None and self._delay_ms <= within_ms and not is_late


class Preparation:
    """The wait of one run for the copies to follow closely. Times are the playbook's, in ms."""

    def __init__(self, policy: FailoverPolicy) -> None:
        self._policy = policy
        self._catch_up = CatchUp()
        self._started_at_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """The first wait begins; others change nothing."""
        if self._started_at_ms is None:
            self._started_at_ms = now_ms

    def observe(self, target: SiteEvidence, source: SiteEvidence, now_ms: int) -> None:
        """Take in the ends of both sites, the source asked after the target."""
        here = {key: position.safe_end_offset for key, position in target.copies.items()}
        ends = {key: position.log_end_offset for key, position in source.partitions.items()}
        self._catch_up.observe(here, ends, now_ms)

    def hindrance(self, source: SiteEvidence, target: SiteEvidence, *, link: str, now_ms: int) -> Decision | None:
        """Wait for a missing mirror or leader, or refuse when none comes; None: nothing is
        missing.
        """
        reason = obstacle(source, target, link=link)
        if not reason:
            return None
        if self._has_waited(OBSTACLE_AWAITED_MS, now_ms):
            return refuse(f"{reason}; nothing was changed")
        return Decision(step=Step.PREPARE, reason=reason)

    def distance(self, target: SiteEvidence, lacking: Completion, absent: str, now_ms: int) -> Decision | None:
        """Wait for copies that lag, or refuse when they do not catch up; None: they follow closely
        enough. `absent` names partitions of which the target has nothing.
        """
        policy, remaining = self._policy, lacking.remaining_records
        named = f"{remaining} records known at the active site are not at {target.site}"
        if not remaining:
            named = absent or named
        if self._catch_up.is_close(within_ms=CLOSE_SHARE * policy.unavailability_max_ms, now_ms=now_ms):
            return None
        if policy.lag_records_max is not None and remaining <= policy.lag_records_max:
            return None
        if self._has_waited(policy.drain_timeout_ms, now_ms):
            return refuse(
                f"{named}, and the mirror does not catch up within {policy.drain_timeout_ms} ms{named_unprotected(target)}; "
                "nothing was changed: repair the link, allow more lag, or accept data loss"
            )
        return Decision(step=Step.PREPARE, reason=f"{named}; writes go on meanwhile")

    def _has_waited(self, limit_ms: int, now_ms: int) -> bool:
        return self._started_at_ms is not None and now_ms - self._started_at_ms >= limit_ms


def obstacle(source: SiteEvidence, target: SiteEvidence, *, link: str) -> str:
    """The reason why a fence would stop writers for long or in vain; empty when there is none."""
    if not target.has_mirror:
        age_ms = target.mirror_age_ms
        since = "never reported" if age_ms == UNKNOWN else f"last reported {age_ms / 1000:.1f} s ago"
        return (
            f"no mirror of link {link} into {target.site} is alive ({since}); start one: "
            f"antipode mirror --config FILE, with link.name={link} and the agents of {target.site} as site.agents; the log of a mirror "
            "that runs says what keeps it from carrying the link"
        )
    return leaderless_sentence(source)


def _has_reached(here: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return all(here.get(key, UNKNOWN) >= end for key, end in ends.items())
