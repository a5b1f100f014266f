"""Chooses the compacted logs that are worth a pass now, and their order. Pure: facts about logs in,
an order out.

A log is cleaned when enough of it is dirty (min.cleanable.dirty.ratio), or when a record has stayed
uncompacted for longer than max.compaction.lag.ms. Overdue logs come first, then the dirtiest.
Records younger than min.compaction.lag.ms are not among the facts, because they are not cleanable
yet.

Caller: broker/log/cleaning/log_cleaning.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar


class Dirtiness(NamedTuple):
    """The dirty part of one log. `oldest_dirty_ms` is the time of the first uncompacted record, -1
    when unknown.
    """

    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int

    @property
    def ratio(self) -> float:
        """Share of the cleanable bytes that no pass has seen."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class CleaningRules(NamedTuple):
    """The topic's limits."""

    dirty_ratio_min: float
    lag_ms_max: int


Log = TypeVar("Log")


def is_overdue(dirtiness: Dirtiness, rules: CleaningRules, now_ms: int) -> bool:
    """True if max.compaction.lag.ms has passed for the oldest uncompacted record."""
    return dirtiness.dirty_bytes > 0 and 0 <= dirtiness.oldest_dirty_ms < now_ms - rules.lag_ms_max


def worth_cleaning(found: Iterable[tuple[Log, Dirtiness, CleaningRules]], now_ms: int) -> list[Log]:
    """The logs that need a pass, in the order in which they are cleaned."""
    ranked = []
    for position, (log, dirtiness, rules) in enumerate(found):
        overdue = is_overdue(dirtiness, rules, now_ms)
        if overdue or (dirtiness.dirty_bytes and dirtiness.ratio > rules.dirty_ratio_min):
            ranked.append((not overdue, -dirtiness.ratio, position, log))
    return [log for *_, log in sorted(ranked, key=lambda entry: entry[:3])]
