"""The conditions of a planned failover that must hold before it stops writers, so that the stop is
short. Pure; `core/playbook.py` asks.

A mirror into the target lives, every partition of the source has a leader, no copy has another
history, and the copies follow closely: the mirror brings what the source takes within a part of the
time for which writers may be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
NAMED_MAX = 3


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


def leaderless_sentence(site: SiteEvidence) -> str:
    """The partitions without a leader, in a sentence; empty when every partition has one."""
    if not site.leaderless:
        return ""
    names = ", ".join(map(str, sorted(site.leaderless)[:NAMED_MAX]))
    return f"{len(site.leaderless)} partitions have no leader at {site.site} ({names}): what they hold cannot be brought over"


def _has_reached(here: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return all(here.get(key, UNKNOWN) >= end for key, end in ends.items())
