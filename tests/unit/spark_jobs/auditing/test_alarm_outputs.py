"""The alarms of an audit for machines. Promised: the metric is 1 while an alarm holds and 0 after
it; a web hook, here a real server, gets one message when alarms begin and one when they end, and
gets it again if it did not take it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from runtime.process import OperationalFailure
from spark_jobs.auditing import alarm_outputs
from spark_jobs.auditing.alarm_outputs import send_change, write_metrics
from spark_jobs.auditing.core.counts import HOUR_MS, Count
from spark_jobs.auditing.count_store import AuditStore
from spark_jobs.auditing.report import AuditReport, audited
from tests.support.embedded.commands import app
from tests.support.processes.ports import LOOPBACK, free_port

WINDOW_MS = 60_000


class Hook:
    """A web hook at a port of its own; `status` is its answer."""

    def __init__(self) -> None:
        self.status = 200
        self.messages: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.messages.append(json.loads(body))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:  # type: ignore[override]
                pass

        self.server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self.server.server_port}/alarms"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Status of each message since the last call, and name and status of its alerts."""
        found = [
            (one["status"], [(alert["labels"]["alertname"], alert["status"]) for alert in one["alerts"]])
            for one in self.messages
        ]
        self.messages.clear()
        return found


@pytest.fixture
def hook() -> Iterator[Hook]:
    started = Hook()
    yield started
    started.server.shutdown()
    started.server.server_close()


class Counted:
    """The state of an audit, with counts for sites a and b."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.store = AuditStore(state)
        self.store.settings(window_ms=WINDOW_MS, counts_topic="")
        self._batches = 0

    def add(self, site: str, window: int, records: int, *, delay_ms: int = 1_000) -> None:
        count = Count(
            "orders", 0, window * WINDOW_MS, delay_ms.bit_length(), records, records, records * delay_ms, delay_ms
        )
        self.store.keep(site, self._batches, [count], [])
        self._batches += 1

    def report(self, **rules: int) -> AuditReport:
        given = {"alarm_windows": 3, "delay_alarm_ms": 5_000, "lateness_ms": 0} | rules
        return audited(self.state, reference="a", settled_until_ms={"orders": 4 * 10**12}, **given)


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    found = Counted(tmp_path / "audit")
    for window in range(3):
        found.add("a", window, 10)
        found.add("b", window, 10)
    return found


def metrics(file: Path, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_the_metric_and_the_web_hook_follow_an_alarm_from_its_breach_until_it_clears(
    counted: Counted, hook: Hook, tmp_path: Path
) -> None:
    file = tmp_path / "audit.prom"

    def checked(**rules: int) -> tuple[float, bool]:
        report = counted.report(**rules)
        write_metrics(report, "a-b", file)
        (value,) = metrics(file, "antipode_audit_alarm", kind="delay", tier="b")
        return value, send_change(report, "a-b", counted.state, hook.url)

    assert checked() == (0.0, False)
    counted.add("b", 1, 1, delay_ms=60_000)
    counted.add("a", 1, 1)
    assert checked() == (1.0, True)
    (message,) = hook.messages
    (alert,) = message["alerts"]
    assert alert["annotations"]["summary"] == "the p99 of the delay of orders at b is 60,000 ms"
    assert (alert["startsAt"], alert["labels"]["topic"]) == ("1970-01-01T00:00:00.000Z", "orders")
    assert hook.taken() == [("firing", [("AntipodeAuditDelay", "firing")])]
    assert metrics(file, "antipode_audit_delay_p99_seconds", tier="b") == [60.0]
    assert checked() == (1.0, False), "the same alarm goes on"
    # The next hour is fast, and a regular check judges it alone.
    hour = HOUR_MS // WINDOW_MS
    counted.add("a", hour, 5)
    counted.add("b", hour, 5)
    assert checked(since_ms=HOUR_MS) == (0.0, True)
    assert hook.taken() == [("resolved", [("AntipodeAuditDelay", "resolved")])]
    assert checked(since_ms=HOUR_MS) == (0.0, False)
    assert not hook.messages


def test_a_gap_is_an_alarm_until_the_missing_records_arrive(counted: Counted, hook: Hook, tmp_path: Path) -> None:
    for window in range(10, 13):
        counted.add("a", window, 10)
        counted.add("b", window, 9)
    assert send_change(counted.report(), "a-b", counted.state, hook.url)
    assert hook.messages[0]["alerts"][0]["annotations"]["summary"] == (
        "3 records of orders are missing at b in 3 windows in a row"
    )
    write_metrics(counted.report(), "a-b", tmp_path / "m.prom")
    assert metrics(tmp_path / "m.prom", "antipode_audit_missing_records", tier="b") == [3.0]
    # The gap closes while the delay breaches: one message has both.
    for window in range(10, 13):
        counted.add("b", window, 1, delay_ms=60_000)
    assert send_change(counted.report(), "a-b", counted.state, hook.url)
    assert hook.taken()[1] == (
        "firing", [("AntipodeAuditDelay", "firing"), ("AntipodeAuditGap", "resolved")]
    )  # fmt: skip
    write_metrics(counted.report(), "a-b", tmp_path / "m.prom")
    assert metrics(tmp_path / "m.prom", "antipode_audit_alarm", kind="gap", tier="b") == [0.0]
    assert metrics(tmp_path / "m.prom", "antipode_audit_missing_records", tier="b") == [0.0]


def test_a_message_that_was_not_taken_or_not_noted_is_sent_again(
    counted: Counted, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.add("a", 5, 1, delay_ms=60_000)
    hook.status = 503
    with pytest.raises(OperationalFailure, match=r"does not take the alarm: it answers 503"):
        send_change(counted.report(), "a-b", counted.state, hook.url)
    with pytest.raises(OperationalFailure, match="does not take the alarm: ConnectionError"):
        send_change(counted.report(), "a-b", counted.state, f"http://{LOOPBACK}:{free_port()}/")
    hook.status = 204

    def interrupted(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(alarm_outputs, "_keep", interrupted)
        with pytest.raises(InterruptedError):
            send_change(counted.report(), "a-b", counted.state, hook.url)
    hook.messages.clear()
    assert send_change(counted.report(), "a-b", counted.state, hook.url)
    assert not send_change(counted.report(), "a-b", counted.state, hook.url)
    assert len(hook.messages) == 1


def test_a_secret_of_the_address_is_looked_up_and_not_printed(
    counted: Counted, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.add("a", 5, 1, delay_ms=60_000)
    monkeypatch.setenv("HOOK_TOKEN", "hidden")
    hook.status = 403
    with pytest.raises(OperationalFailure) as refused:
        send_change(counted.report(), "a-b", counted.state, hook.url + "?token=${env:HOOK_TOKEN}")
    assert "hidden" not in str(refused.value)
    assert len(hook.messages) == 1


def test_the_command_writes_the_metrics_and_calls_the_web_hook(
    counted: Counted, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.spark.audit._environment", lambda _: None)
    monkeypatch.setattr("cli.spark.audit._settled", lambda *_: ("a", {"orders": 4 * 10**12}))
    file = tmp_path / "audit.prom"
    command = ["audit", "report", "a-b", "--state", str(counted.state), "--delay-alarm-ms", "5000"]
    command += ["--metrics-file", str(file), "--webhook", hook.url]
    counted.add("a", 5, 1, delay_ms=60_000)
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, len(hook.messages)) == (1, 1), done.output
    assert metrics(file, "antipode_audit_alarm", kind="delay", tier="a") == [1.0]
    hook.status = 500
    done = CliRunner().invoke(app, [*command, "--since", "1970-01-01T01:00:00Z"])
    assert (done.exit_code, len(hook.messages)) == (1, 2)
    assert "it answers 500" in done.output
    hook.status = 200
    done = CliRunner().invoke(app, [*command, "--since", "1970-01-01T01:00:00Z"])
    assert (done.exit_code, hook.messages[-1]["status"]) == (0, "resolved"), done.output
    done = CliRunner().invoke(app, [*command, "--metrics-file", str(tmp_path / "none" / "m.prom")])
    assert done.exit_code == 1
    assert "cannot be written" in done.output
    done = CliRunner().invoke(app, [*command, "--webhook", "alerts.example.org"])
    assert done.exit_code == 2
    assert "accepted is a URL" in done.output
