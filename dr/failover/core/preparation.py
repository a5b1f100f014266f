"""The conditions of a planned failover that must hold before it stops writers, so that the stop is
short. Pure; caller: `playbook.py`.

The conditions: a mirror into the target is alive and can carry the access rules, every partition
of the source has a leader, no copy has another history, and the copies follow closely. Closely
means that the mirror copies new records within a share of the time for which writers may be
stopped.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dr.failover.core.completion import Completion, leaderless_sentence
from dr.failover.core.refusals import named_unprotected
from dr.failover.core.steps import Decision, FailoverPolicy, Step, refuse
from dr.sites.core.access_rules import unable_to_carry
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.log_columns import log_ends, safe_ends
from dr.sites.core.mirror_reports import MIRROR_SILENT_MS
from wire.protocol.ids import UNKNOWN, TopicPartition

OBSTACLE_AWAITED_MS = MIRROR_SILENT_MS
"""Time (ms) in which a failover waits for a missing mirror or leader: a mirror reports each second,
an election takes moments.
"""
CLOSE_SHARE = 0.5
"""A copy follows closely if its delay is at most this share of the time for which writers may be
stopped.
"""


class _Mark(Struct, frozen=True, kw_only=True):
    ends: Mapping[TopicPartition, int]
    at_ms: int


class CatchUp:
    """Measures how long the copies take to reach an earlier end of the source."""

    def __init__(self) -> None:
        self._mark: _Mark | None = None
        self._delay_ms: int | None = None

    def observe(self, here: Mapping[TopicPartition, int], source: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Note the safe ends of the copies, and the ends of the source, which was asked after
        them.
        """
        if _has_reached(here, source):
            self._mark, self._delay_ms = None, 0
            return
        if self._mark is not None and _has_reached(here, self._mark.ends):
            self._delay_ms = now_ms - self._mark.at_ms
            self._mark = None
        # Under load the copies never reach the ends of this moment, so the delay is measured from
        # one marked moment until they reach its ends.
        if self._mark is None:
            self._mark = _Mark(ends=source, at_ms=now_ms)

    def is_close(self, *, within_ms: float, now_ms: int) -> bool:
        """True if the last measured delay is at most `within_ms` and the current mark is not
        older.
        """
        is_late = self._mark is not None and now_ms - self._mark.at_ms > within_ms
        return self._delay_ms is not None and self._delay_ms <= within_ms and not is_late


class Preparation:
    """The wait of one run until the copies follow closely. Times are the playbook's, in ms."""

    def __init__(self, policy: FailoverPolicy) -> None:
        self._policy = policy
        self._catch_up = CatchUp()
        self._started_at_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Start the wait; later calls change nothing."""
        if self._started_at_ms is None:
            self._started_at_ms = now_ms

    def observe(self, target: SiteEvidence, source: SiteEvidence, now_ms: int) -> None:
        """Note the ends of both sites; the source was asked after the target."""
        self._catch_up.observe(safe_ends(target.copies), log_ends(source.partitions), now_ms)

    def hindrance(self, source: SiteEvidence, target: SiteEvidence, *, link: str, now_ms: int) -> Decision | None:
        """Wait for a missing mirror or leader, or refuse if it stays missing for too long; None if
        nothing is missing.
        """
        reason = obstacle(source, target, link=link)
        if not reason:
            return None
        if self._has_waited(OBSTACLE_AWAITED_MS, now_ms):
            return refuse(f"{reason}; nothing was changed")
        return Decision(step=Step.PREPARE, reason=reason)

    def distance(self, target: SiteEvidence, lacking: Completion, absent: str, now_ms: int) -> Decision | None:
        """Wait for copies that lag, or refuse if they do not catch up in time; None if they follow
        closely enough. `absent` names partitions of which the target has nothing.
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
                f"{named}, and the mirror does not catch up within {policy.drain_timeout_ms} "
                f"ms{named_unprotected(target)}; "
                "nothing was changed: repair the link, allow more lag, or accept data loss (--accept-data-loss)"
            )
        return Decision(step=Step.PREPARE, reason=f"{named}; writers continue meanwhile")

    def _has_waited(self, limit_ms: int, now_ms: int) -> bool:
        return self._started_at_ms is not None and now_ms - self._started_at_ms >= limit_ms


def obstacle(source: SiteEvidence, target: SiteEvidence, *, link: str) -> str:
    """The reason why a fence would stop writers for long or in vain; empty when there is none."""
    if not target.has_mirror:
        age_ms = target.mirror_age_ms
        since = "never reported" if age_ms == UNKNOWN else f"last reported {age_ms / 1000:.1f} s ago"
        return (
            f"no mirror of link {link} into {target.site} runs ({since}); start one: antipode mirror --config "
            f"FILE, with link.name={link} and the agents of {target.site} as site.agents; a running mirror "
            f"logs why it cannot mirror the link"
        )
    if cannot := unable_to_carry(target.access):
        return (
            f"{cannot} to {target.site}, so the promoted site would lack changes; repair the cause (with "
            f"sync.topic.acls.enabled=false at the mirror, no move waits for ACLs, SCRAM users and quotas)"
        )
    return leaderless_sentence(source)


def _has_reached(here: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    if here == ends:
        return True
    return all(here.get(key, UNKNOWN) >= end for key, end in ends.items())
