"""`antipode repair` before it compares: sites whose brokers do not answer are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dr.drill.environment import Environment
from dr.repair.execution import RepairRequest
from tests.support.embedded.commands import app
from tests.support.processes.ports import LOOPBACK, free_port
from wire.control.cluster_pb2 import LinkRecord


def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dead = {site: f"{LOOPBACK}:{free_port()}" for site in "ab"}

    async def found(_known: Environment, name: str) -> RepairRequest:
        return RepairRequest(record=LinkRecord(name=name), bootstraps=dead)

    monkeypatch.setattr("cli.recovery.repair._request", found)
    monkeypatch.setattr("cli.shared.brokers.ANSWERED_WITHIN_MS", 300)
    file = tmp_path / "environment.json"
    file.write_text('{"sites": {}}')
    ended = CliRunner().invoke(app, ["repair", "a-b", "--environment", str(file), "--dry-run"])
    assert ended.exit_code == 1, ended.exception
    for site, address in dead.items():
        assert f"site {site}: no broker at {address} answers" in ended.output
