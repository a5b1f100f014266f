"""Drills on two real sites behind toxiproxy. Promised: a drill measures the faults as they
happened, and ends each fault that it made.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dr.drill.environment import parse_environment
from dr.drill.execution import Commands, Glance, run_drill
from dr.drill.plan.drill_plan import parse_plan
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy

pytestmark = pytest.mark.chaos

EQUAL = [sys.executable, "-c", "print('{{\"findings\": []}}')"]


@pytest.fixture
async def sites(
    processes: Processes, tmp_path: Path, zookeeper_connect: str, toxiproxy: Toxiproxy
) -> AsyncIterator[LinkedSites]:
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, toxiproxy)
    await pair.link()
    pair.start_mirror()
    yield pair
    await pair.channels.close()


def plan_of(*steps: object, **expect: object) -> Any:
    return parse_plan({"name": "drill", "link": LINK, "steps": list(steps), "expect": expect}, where="test")


def environment_of(sites: LinkedSites) -> Any:
    return parse_environment(json.dumps(sites.environment()), where="test")


LOAD = (
    {"create_topics": {"topics": [{"name": "drill", "partitions": 2}]}},
    {"start_group": {"name": "board", "topics": ["drill"]}},
    {"start_load": {"name": "load", "records_per_second": 500}},
    {"wait": {"delivered": 300, "within": "60s"}},
)
END = (
    {"stop_load": {"name": "load"}},
    {"wait": {"is_delivered_all": True, "within": "60s"}},
    {"stop_group": {"name": "board"}},
)


async def test_f2_a_site_killed_under_load_is_failed_over_and_the_account_has_its_loss(
    sites: LinkedSites, tmp_path: Path
) -> None:
    plan = plan_of(
        *LOAD,
        "cut",
        {"hold": {"duration": "1s"}},
        "heal",
        {"wait": {"lag_records_max": 20, "within": "60s"}},
        {"reconcile": {"name": "before"}},
        {"kill": {"site": "a"}},
        {"fail_over": {"to": "b"}},
        {"wait": {"acknowledged": 500, "within": "60s"}},
        *END,
        {"start": {"site": "a"}},
        "check",
        duplicates_max=0,
        gaps_max=0,
        order_violations_max=0,
        undelivered_max=0,
        loss_is_as_accounted=True,
        producer_recovery_ms_max="60s",
        consumer_recovery_ms_max="60s",
        consumer_catch_up_ms_max="60s",
        sites_equal=["before"],
    )
    result, files = await run_drill(
        plan,
        environment_of(sites),
        directory=tmp_path / "drill",
        stop=asyncio.Event(),
        commands=Commands(reconcile=EQUAL),
    )
    assert result.is_passed, (result.reason, result.verdicts, result.steps)
    assert result.measured is not None
    assert result.measured.acknowledged > 800
    assert result.measured.producer_outage is not None
    assert [report.to_site for report in result.failovers] == ["b"]
    assert result.restore_problems == []
    document = json.loads(files.json.read_text())
    assert document["measured"]["missing"]["count"] == len(result.measured.missing)
    assert "Expectations" in files.html.read_text()
    assert all(fault.ended_at_ms for fault in result.faults)


async def test_a_drill_that_is_stopped_heals_the_link_continues_processes_and_ends_its_clients(
    sites: LinkedSites, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    plan = plan_of(
        *LOAD,
        {"slow": {"latency": "50ms"}},
        {"cut": {"is_silent": True, "kind": "link"}},
        {"stop": {"process": "mirror-a-b"}},
        {"kill": {"site": "b"}},
        {"hold": {"duration": "10m"}},
        *END,
    )
    stop = asyncio.Event()

    def view(glance: Glance) -> None:
        if glance.step.startswith("hold"):
            stop.set()

    result, _ = await run_drill(plan, environment_of(sites), directory=tmp_path / "drill", stop=stop, view=view)
    assert result.outcome == "stopped"
    assert [step.outcome for step in result.steps[-4:]] == ["stopped", "skipped", "skipped", "skipped"]
    assert result.restore_problems == []
    assert toxiproxy.request("GET", "/proxies/a-link/toxics") == []
    assert all(described["enabled"] for described in toxiproxy.request("GET", "/proxies").values())

    async def b_has_caught_up() -> bool:
        return (await sites.ends("a")) == (await sites.ends("b"))

    await eventually(b_has_caught_up)


@pytest.mark.long
async def test_an_expectation_that_is_not_met_fails_the_drill_and_says_which(
    sites: LinkedSites, tmp_path: Path
) -> None:
    plan = plan_of(
        *LOAD, {"fail_over": {"to": "b"}}, {"wait": {"acknowledged": 100}}, *END, producer_recovery_ms_max="1ms"
    )
    result, _ = await run_drill(plan, environment_of(sites), directory=tmp_path / "drill", stop=asyncio.Event())
    assert result.outcome == "failed"
    assert result.reason == "not as expected: recovery time of producers"
    assert result.measured is not None
    assert result.measured.missing == ()
