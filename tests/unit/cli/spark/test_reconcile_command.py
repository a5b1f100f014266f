"""`antipode reconcile` before it starts Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.spark.proof.sides import check_sites_answer, sides_of_brokers
from tests.support.clients.scripted_broker import API_VERSIONS
from tests.support.clients.scripted_cluster import ScriptedCluster
from tests.support.embedded.commands import app
from tests.support.processes.ports import LOOPBACK, free_port
from wire.protocol.streams.frames import RequestHeader


def test_sites_that_do_not_answer_are_named_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("spark_jobs.session.session", started)
    monkeypatch.setattr("cli.shared.brokers.ANSWERED_WITHIN_MS", 300)
    source, target = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
    ended = CliRunner().invoke(
        app, ["reconcile", "--source", source, "--target", target, "--out", str(tmp_path / "report")]
    )
    assert ended.exit_code == 2, ended.exception
    for site, address in (("source", source), ("target", target)):
        assert f"site {site}: no broker at {address} answers" in ended.output


async def test_a_line_that_loses_the_first_request_ends_no_comparison() -> None:
    lost: list[object] = []
    async with ScriptedCluster(1) as cluster:
        (broker,) = cluster.brokers.values()
        answer = broker.scripts[API_VERSIONS]

        def lose_the_first(request: Any, header: RequestHeader) -> Any:
            if not lost:
                lost.append(request)
                return None
            return answer(request, header)

        broker.scripts[API_VERSIONS] = lose_the_first
        await check_sites_answer(sides_of_brokers(str(broker.address), str(broker.address)))
    assert lost
