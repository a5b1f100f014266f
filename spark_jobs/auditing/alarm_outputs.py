"""The alarms of an audit for machines: a file of Prometheus metrics, and messages to a web hook
when alarms begin or end.

STATE/alarms.json has the alarms of the last message that the web hook took. It is written after
that: a report that is interrupted in between sends the message again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import requests
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from runtime.config_providers import looked_up
from runtime.process import OperationalFailure
from runtime.times import iso_time
from spark_jobs.auditing.core.alarms import DELAY, GAP, Alarm, alarm_change, alarms_of, hook_message
from spark_jobs.auditing.report import AuditReport

TIMEOUT_S: Final = 10.0
STATE_FILE: Final = "alarms.json"
_HTTP_ACCEPTED: Final = range(200, 300)


def write_metrics(report: AuditReport, link: str, file: Path) -> None:
    """Write the metrics in Prometheus' text format, as the textfile collector of the node exporter
    reads them. The file is replaced as a whole. OperationalFailure.
    """
    registry = CollectorRegistry()
    at = ["link", "tier", "topic"]
    alarm = Gauge("antipode_audit_alarm", "1 while the alarm holds, else 0", ["kind", *at], registry=registry)
    missing = Gauge(
        "antipode_audit_missing_records", "Records missing in judged windows; below 0: surplus", at, registry=registry
    )
    delay = Gauge(
        "antipode_audit_delay_p99_seconds", "The p99 of the delay in the newest judged hour", at, registry=registry
    )
    written = Gauge("antipode_audit_report_timestamp_seconds", "Time of the report", ["link"], registry=registry)
    judged = report.judged
    raised = {one.key for one in alarms_of(judged)}
    known = {(GAP, one.tier, one.topic) for one in judged.balances}
    known |= {(DELAY, one.tier, one.topic) for one in judged.delays}
    for kind, tier, topic in sorted(known | raised):
        alarm.labels(kind, link, tier, topic).set((kind, tier, topic) in raised)
    for balance in judged.balances:
        missing.labels(link, balance.tier, balance.topic).inc(balance.gap)
    for hour in judged.delays:  # sorted by hour: the newest one is last
        delay.labels(link, hour.tier, hour.topic).set(hour.p99_ms / 1000)
    written.labels(link).set(time.time())
    try:
        write_to_textfile(str(file), registry)
    except OSError as error:
        raise OperationalFailure(f"--metrics-file {file} cannot be written: {error}") from error


def send_change(report: AuditReport, link: str, state: Path, hook: str) -> bool:
    """Send a message if an alarm has begun or ended since the last one; True if it was sent. Raises
    OperationalFailure when the web hook does not take it; the next report sends it again then.
    """
    now = alarms_of(report.judged)
    change = alarm_change(_sent(state), now)
    if change is None:
        return False
    since = [iso_time(one.since_ms) for one in (*change.firing, *change.resolved)]
    message = hook_message(link, change, iso_since=since, iso_now=iso_time(round(time.time() * 1000)))
    _post(hook, message)
    _keep(state, now)
    return True


def _post(hook: str, message: dict[str, Any]) -> None:
    # Errors name the option as it was given: the address may contain a secret.
    url = looked_up({"--webhook": hook})["--webhook"]
    try:
        response = requests.post(url, json=message, timeout=TIMEOUT_S, allow_redirects=False)
    except requests.RequestException as error:
        raise OperationalFailure(f"--webhook {hook} does not take the alarm: {type(error).__name__}") from error
    if response.status_code not in _HTTP_ACCEPTED:
        raise OperationalFailure(f"--webhook {hook} does not take the alarm: it answers {response.status_code}")


def _sent(state: Path) -> list[Alarm]:
    file = state / STATE_FILE
    if not file.exists():
        return []
    try:
        return [Alarm(*one) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise OperationalFailure(f"{file} cannot be read: {error}") from error


def _keep(state: Path, alarms: Sequence[Alarm]) -> None:
    part = state / f".{STATE_FILE}.part"
    part.write_text(json.dumps(alarms), encoding="utf-8")
    part.replace(state / STATE_FILE)
