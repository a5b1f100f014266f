"""Judges the counts of an audit: finds the windows that are settled, the tiers that have fewer
records than were produced, and the gaps that are alarms. Pure.

The books balance in a window when produced = stored + rejected. A window is judged once it is
settled: everything produced before its end is known to have arrived (`antipode links complete`). A
gap that closes again is no alarm: the current counts are judged, and a late record counts in its
own window. Gaps in `alarm_windows` settled windows in a row are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.auditing.core.counts import Tally, WindowCount

P99 = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRules:
    """The rules by which counts are judged. `reference` is the tier whose counts are the produced
    records; `delay_alarm_ms` 0: no alarm for delays. Windows and hours that begin before `since_ms`
    are not judged, so that an alarm that was handled does not last.
    """

    reference: str
    window_ms: int
    alarm_windows: int = 3
    delay_alarm_ms: int = 0
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One settled window of one topic at one tier."""

    tier: str
    topic: str
    window_start_ms: int
    produced: int
    stored: int
    rejected: int

    @property
    def gap(self) -> int:
        """The number of missing records; negative for surplus records."""
        return self.produced - self.stored - self.rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Neighbouring settled windows that do not balance; both starts are included."""

    tier: str
    topic: str
    first_window_ms: int
    last_window_ms: int
    windows: int
    missing: int
    is_alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayPoint:
    """The delays of one hour of event time."""

    tier: str
    topic: str
    hour_ms: int
    records: int
    mean_ms: float
    p99_ms: int
    max_ms: int
    is_alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The result of judging the counts."""

    balances: tuple[Balance, ...]
    gaps: tuple[Gap, ...]
    delays: tuple[DelayPoint, ...]

    @property
    def is_alarm(self) -> bool:
        """True if a gap or a delay is an alarm."""
        return any(gap.is_alarm for gap in self.gaps) or any(one.is_alarm for one in self.delays)


def judge(tally: Tally, rules: AuditRules, settled_until_ms: Mapping[str, int]) -> Judged:
    """Judge all topics. `settled_until_ms` says by topic until when everything has arrived; a topic
    that is not in it has no settled window.
    """
    balances: list[Balance] = []
    gaps: list[Gap] = []
    topics = sorted({topic for _, topic, _ in tally.windows})
    for tier in tally.tiers():
        if tier == rules.reference:
            continue
        for topic in topics:
            found = list(_balances(tally, rules, tier, topic, settled_until_ms.get(topic, 0)))
            balances += found
            gaps += _gaps(found, rules)
    return Judged(balances=tuple(balances), gaps=tuple(gaps), delays=tuple(_delays(tally, rules)))


def _balances(tally: Tally, rules: AuditRules, tier: str, topic: str, settled_until_ms: int) -> Iterator[Balance]:
    produced, here = tally.of(rules.reference, topic), tally.of(tier, topic)
    if not here and tier not in tally.sites:
        return  # This program does not process the topic.
    nothing = WindowCount()
    for start_ms in sorted({*produced, *here}):
        if start_ms < rules.since_ms or start_ms + rules.window_ms > settled_until_ms:
            continue
        mine, other = produced.get(start_ms, nothing), here.get(start_ms, nothing)
        yield Balance(
            tier=tier,
            topic=topic,
            window_start_ms=start_ms,
            produced=mine.records,
            stored=other.records,
            rejected=other.rejected,
        )


def _gaps(balances: Sequence[Balance], rules: AuditRules) -> Iterator[Gap]:
    for run in _runs(balances):
        yield Gap(
            tier=run[0].tier,
            topic=run[0].topic,
            first_window_ms=run[0].window_start_ms,
            last_window_ms=run[-1].window_start_ms,
            windows=len(run),
            missing=sum(one.gap for one in run),
            is_alarm=len(run) >= rules.alarm_windows,
        )


def _runs(balances: Iterable[Balance]) -> Iterator[list[Balance]]:
    """Runs of neighbouring windows with records that do not balance."""
    run: list[Balance] = []
    for one in balances:
        if one.gap:
            run.append(one)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _delays(tally: Tally, rules: AuditRules) -> Iterator[DelayPoint]:
    for (tier, topic, hour_ms), found in sorted(tally.delays.items()):
        if hour_ms < rules.since_ms:
            continue
        p99_ms = found.quantile_ms(P99)
        yield DelayPoint(
            tier=tier,
            topic=topic,
            hour_ms=hour_ms,
            records=found.records,
            mean_ms=found.mean_ms,
            p99_ms=p99_ms,
            max_ms=found.delay_max_ms,
            is_alarm=0 < rules.delay_alarm_ms < p99_ms,
        )
