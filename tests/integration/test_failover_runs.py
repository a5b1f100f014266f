"""Runs of failovers as operators see them: a killed run is listed, aborted before the point of no
return, and finished after it, with any remainder of its records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dr.failover.execution import failover
from runtime.zookeeper.client import ZooKeeper
from tests.integration.test_failback import command
from tests.integration.test_failing_over_again import PATIENT_MS, PLANNED, have_both, linked, produce
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from wire.znodes.link_znodes import runs_path

pytestmark = pytest.mark.integration


class Died(Exception):
    """The process of the run is gone."""


async def die_at(sites: LinkedSites, step: str, journal: Path | None = None) -> None:
    """A failover to b whose process ends as the step begins."""

    def progress(name: str, _reason: str) -> None:
        if name == step:
            raise Died

    with pytest.raises(Died):
        await failover(LINK, to_site="b", agents=sites.agents, policy=PLANNED, progress=progress, journal_path=journal)


async def asked(sites: LinkedSites, verb: str, code: int = 0) -> Any:
    options = [f"--site={name}={agents[0]}" for name, agents in sites.agents.items()]
    return await command("failovers", verb, LINK, *options, code=code)


async def test_f7_a_run_that_died_is_aborted_before_the_point_of_no_return_and_finished_after_it(
    sites: LinkedSites, zookeeper_connect: str, tmp_path: Path
) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 30)
    await eventually(lambda: have_both(sites, 30), PATIENT_MS)
    refused = await asked(sites, "abort", code=1)
    assert "is not fenced" in refused["reason"]

    await die_at(sites, "raise")
    assert not await sites.is_writable("a")
    run = (await asked(sites, "list"))[-1]
    assert (run["outcome"], run["epoch"], run["to_site"]) == ("running", 1, "b")
    assert run["driven_by"] == "no process: writes at a are stopped, run it again or abort it"
    assert [step["step"] for step in run["steps"]][-2:] == ["fence", "drain"]
    aborted = await asked(sites, "abort")
    assert (aborted["outcome"], aborted["epoch"]) == ("aborted", 2)
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    await produce(sites.a.bootstrap, 5, first=30)
    await eventually(lambda: have_both(sites, 35), PATIENT_MS)

    journal = tmp_path / "journal.jsonl"
    await die_at(sites, "promote", journal)
    died = (await asked(sites, "list"))[-1]
    assert died["outcome"] == "running"
    assert died["driven_by"].startswith("the agents of b"), died
    refused = await asked(sites, "abort", code=1)
    assert "point of no return" in refused["reason"]
    lines = journal.read_bytes()
    journal.write_bytes(lines[: len(lines) // 2])
    zookeeper = ZooKeeper(f"{zookeeper_connect}/b")
    await zookeeper.start()
    for name in (await zookeeper.children(runs_path(LINK)))[::2]:
        await zookeeper.delete(f"{runs_path(LINK)}/{name}")
    await zookeeper.stop()
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=PLANNED, journal_path=journal)
    # the agents confirm the role to each other once both sites have the epoch: then nothing is left
    assert report.is_done or f"b is active for link {LINK} already" in report.reason, report
    assert report.account is not None
    account = report.account
    assert sum(item.kept_below for item in account.partitions) == 35, account
    assert account.known_lost_records == 0, account
    assert all(item.is_source_end_exact for item in account.partitions), account
    # The run that died compared the groups; without a later report their loss is "at least 0".
    assert account.groups is None or not account.groups.known_lost_offsets, account
    await eventually(lambda: sites.is_writable("b"), PATIENT_MS)
    *earlier, last = await asked(sites, "list")
    drivers = {run["driven_by"] for run in earlier if run["outcome"] == "running"}
    assert drivers <= {"a later run", "the agents of b have finished it: epoch 3 is confirmed"}, drivers
    assert not last["driven_by"]
    assert (last["outcome"], last["epoch"]) == ("done" if report.is_done else "refused", 3)
    assert not any(step["problem"] for step in last["steps"])


async def test_writes_stopped_for_a_standby_that_is_lost_for_good_go_on_without_the_link(sites: LinkedSites) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 30)
    await eventually(lambda: have_both(sites, 30), PATIENT_MS)
    await die_at(sites, "raise")
    sites.b.process.kill()
    assert not await sites.is_writable("a")
    options = [f"--site={name}={agents[0]}" for name, agents in sites.agents.items()]
    gone = await command("links", "delete", LINK, *options, "--skip-unreachable", "--yes")
    assert gone == {"deleted_at": ["a"]}
    await produce(sites.a.bootstrap, 5, first=30)
