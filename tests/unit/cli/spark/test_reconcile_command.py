"""`antipode reconcile` before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.embedded.commands import app
from tests.support.processes.ports import LOOPBACK, free_port


def test_sites_that_do_not_answer_are_named_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("spark_jobs.session.session", started)
    source, target = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
    ended = CliRunner().invoke(
        app, ["reconcile", "--source", source, "--target", target, "--out", str(tmp_path / "report")]
    )
    assert ended.exit_code == 2, ended.exception
    for site, address in (("source", source), ("target", target)):
        assert f"site {site}: no broker at {address} answers" in ended.output
