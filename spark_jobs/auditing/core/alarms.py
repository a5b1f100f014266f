"""The alarms of an audit and how they change from one report to the next: which begin, go on and
end, and the message about it. Pure.

An alarm has a kind, a tier and a topic; however many windows or hours raise it, it is one. The
message has the form of the web hook of Prometheus' Alertmanager (version 4), which services that
phone or text people accept.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from spark_jobs.auditing.core.judging import Judged

RECEIVER: Final = "antipode-audit"
GAP, DELAY = "gap", "delay"
_NAMES: Final = {GAP: "AntipodeAuditGap", DELAY: "AntipodeAuditDelay"}


class Alarm(NamedTuple):
    """An alarm. `since_ms` is the Unix time of the first window or hour that raises it."""

    kind: str
    tier: str
    topic: str
    since_ms: int
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for two reports of the same alarm."""
        return self.kind, self.tier, self.topic


class AlarmStatus(enum.StrEnum):
    """Whether an alarm goes on."""

    FIRING = "firing"
    RESOLVED = "resolved"


class AlarmChange(NamedTuple):
    """A difference between two reports: all alarms of the later one, and those that have ended."""

    firing: tuple[Alarm, ...]
    resolved: tuple[Alarm, ...]


def alarms_of(judged: Judged) -> tuple[Alarm, ...]:
    """The alarms of a report, by kind, tier and topic."""
    found: dict[tuple[str, str, str], Alarm] = {}
    for one in sorted(_raised(judged), key=lambda alarm: (alarm.key, alarm.since_ms)):
        found.setdefault(one.key, one)
    return tuple(found.values())


def _raised(judged: Judged) -> Iterable[Alarm]:
    for gap in judged.gaps:
        if gap.is_alarm:
            text = f"{gap.missing:,} records of {gap.topic} are missing at {gap.tier} in {gap.windows} windows in a row"
            yield Alarm(GAP, gap.tier, gap.topic, gap.first_window_ms, text)
    for hour in judged.delays:
        if hour.is_alarm:
            text = f"the p99 of the delay of {hour.topic} at {hour.tier} is {hour.p99_ms:,} ms"
            yield Alarm(DELAY, hour.tier, hour.topic, hour.hour_ms, text)


def alarm_change(before: Sequence[Alarm], now: Sequence[Alarm]) -> AlarmChange | None:
    """The change since the last message; None if the same alarms go on, or there still are none."""
    keys = {one.key for one in now}
    resolved = tuple(one for one in before if one.key not in keys)
    is_new = bool(keys - {one.key for one in before})
    return AlarmChange(tuple(now), resolved) if is_new or resolved else None


def hook_message(link: str, change: AlarmChange, *, iso_since: Sequence[str], iso_now: str) -> dict[str, Any]:
    """The message. `iso_since` has the ISO time of each alarm's `since_ms`, firing ones first."""
    statuses = [AlarmStatus.FIRING] * len(change.firing) + [AlarmStatus.RESOLVED] * len(change.resolved)
    alerts = [
        {
            "status": status.value,
            "labels": {
                "alertname": _NAMES[alarm.kind],
                "link": link,
                "tier": alarm.tier,
                "topic": alarm.topic,
                "severity": "critical",
            },
            "annotations": {"summary": alarm.text},
            "startsAt": since,
            "endsAt": iso_now if status is AlarmStatus.RESOLVED else "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": "/".join((link, *alarm.key)),
        }
        for alarm, status, since in zip((*change.firing, *change.resolved), statuses, iso_since, strict=True)
    ]
    return {
        "version": "4",
        "groupKey": f"{RECEIVER}/{link}",
        "truncatedAlerts": 0,
        "status": (AlarmStatus.FIRING if change.firing else AlarmStatus.RESOLVED).value,
        "receiver": RECEIVER,
        "groupLabels": {"link": link},
        "commonLabels": {"link": link, "severity": "critical"},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": alerts,
    }
