"""Dry runs refuse what the run refuses, or say what only the run can find out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from runtime.process import OperationalFailure
from tests.support.embedded.commands import app

BROKER = "node.id=1001\nantipode.site.name=b\nlisteners=CLIENT://127.0.0.1:9092\nzookeeper.connect=127.0.0.1:2181\n"


def test_a_rehearsal_that_would_be_refused_has_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"{BROKER}log.dirs={tmp_path}/logs\n")

    async def refused(link: str, brokers: Any) -> None:
        raise OperationalFailure(f"b is active for link {link}: only a standby can be rehearsed")

    monkeypatch.setattr("cli.recovery.rehearse._survey", refused)
    ended = CliRunner().invoke(app, ["rehearse", "a-b", "--to", "b", "--config", str(config), "--dry-run"])
    assert ended.exit_code == 1, ended.stderr
    assert "only a standby can be rehearsed" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("has_replica", [True, False])
def test_unregistering_an_unknown_broker_is_doubted(monkeypatch: pytest.MonkeyPatch, has_replica: bool) -> None:
    topic = SimpleNamespace(name="t", partitions={0: SimpleNamespace(replicas=(1, 9) if has_replica else (1, 2))})
    known = SimpleNamespace(brokers={1: None}, topics={"t": topic})
    monkeypatch.setattr("cli.administration.brokers.ask_cluster", lambda *_, **__: known)
    ended = CliRunner().invoke(app, ["brokers", "unregister", "9", "--dry-run"])
    assert ended.exit_code == 0, ended.stderr
    assert ("no partition has a replica at broker 9: the command is refused then" in ended.stderr) is not has_replica
