"""The clients of a drill. Promised: only what they observe in this drill counts."""

from __future__ import annotations

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
