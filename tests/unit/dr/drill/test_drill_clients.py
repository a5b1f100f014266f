"""The clients of a drill. Promised: only what they observe in this drill counts, and a producer
that was killed at its end was sending until then.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dr.drill.core.history import Acknowledged, to_line
from dr.drill.drill_clients import DrillClients


def test_what_an_earlier_drill_in_the_directory_observed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = Acknowledged("shop", 0, "orders", 0, 7, 1.0, 2.0)
    (tmp_path / "shop.history").write_text(to_line(earlier), encoding="utf-8")
    monkeypatch.setattr("sys.executable", "/bin/true")
    clients = DrillClients(tmp_path)
    clients.start_producer("shop", {})
    clients.producers["shop"].process.wait()
    clients.collect()
    assert clients.acknowledged == []


def test_a_producer_that_is_killed_was_sending_until_then(tmp_path: Path) -> None:
    clients = DrillClients(tmp_path)
    clients.start_producer("shop", {})
    process = clients.producers["shop"].process
    process.send_signal(signal.SIGSTOP)  # it must not end by itself
    assert clients.sending_until_ms(1e15) == 1e15
    clients.end_all()
    killed_at_ms = clients.sending_until_ms(1e15)
    assert killed_at_ms is not None
    assert killed_at_ms < 1e15
    clients.end_all()
    assert clients.sending_until_ms(1e15) == killed_at_ms


def test_a_producer_that_has_ended_is_not_sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/true")
    clients = DrillClients(tmp_path)
    clients.start_producer("shop", {})
    clients.producers["shop"].process.wait()
    clients.end_all()
    assert clients.sending_until_ms(1e15) is None
