"""`antipode rehearse`: clones of the standby are promoted while mirroring goes on, and nothing of
the pair changes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.embedded.embedded_sites import FRONT_DOOR, LINK, REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce

pytestmark = pytest.mark.integration

PARTITIONS = 3
RECORDS = 9_000


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path_factory.mktemp("rehearsal"))
    try:
        pair = starter()
        asyncio.run(fill(pair))
        yield pair
    finally:
        starter.end_all()


async def fill(sites: EmbeddedSites) -> None:
    """Records at both sites, and a group that has read some."""
    await create_topic(sites, PARTITIONS)
    produce(sites, RECORDS, partitions=PARTITIONS)
    reading = ("consume", TOPIC, "--group", "readers", "--from-beginning", "--max-messages", "500")
    assert sites.command(*reading, "--bootstrap-server", sites.bootstrap("a")).returncode == 0
    assert sum((await equal_ends(sites)).values()) == RECORDS


def rehearsed(sites: EmbeddedSites, report: Path) -> dict[str, Any]:
    done = sites.command("rehearse", LINK, "--to", "b", "--report-dir", str(report), "--output", "json")
    assert done.returncode == 0, done.stderr + done.stdout
    return dict(json.loads(done.stdout))


def epochs(sites: EmbeddedSites) -> list[tuple[str, int, str]]:
    found = json.loads(sites.command("links", "describe", LINK, "--output", "json").stdout)
    return [(one["site"], one["link"]["epoch"], one["link"]["active_site"]) for one in found]


def left_over(sites: EmbeddedSites) -> list[Path]:
    return list(sites.directory.rglob(".antipode-rehearsal"))


async def test_a_rehearsal_changes_nothing_of_the_pair(sites: EmbeddedSites, tmp_path: Path) -> None:
    before = await equal_ends(sites)
    known = epochs(sites)
    found = rehearsed(sites, tmp_path / "report")
    assert {one["name"] for one in found["verdicts"] if one["is_met"]} >= {"records", "groups", "digests", "clients"}
    assert found["failovers"][0]["epoch"] == known[0][1] + 1
    for name in ("report.html", "report.json", "junit.xml"):
        assert (tmp_path / "report" / name).stat().st_size > 0
    assert (await equal_ends(sites), epochs(sites), left_over(sites)) == (before, known, [])
    produce(sites, 300, partitions=PARTITIONS)
    assert sum((await equal_ends(sites)).values()) == RECORDS + 300
    checks = json.loads(sites.command("links", "check", LINK, "--output", "json").stdout)["checks"]
    assert ("rehearsal", "ok") in [(one["check"], one["outcome"]) for one in checks]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("digest", marks=pytest.mark.long),
        pytest.param("promote", marks=pytest.mark.long),
        pytest.param("drop", marks=pytest.mark.long),
    ],
)
def test_the_next_rehearsal_removes_the_leftovers_of_a_killed_one(
    sites: EmbeddedSites, tmp_path: Path, step: str
) -> None:
    """`kill -9` as the step begins."""
    environment = str(sites.directory / "environment.json")
    command = [*FRONT_DOOR, "rehearse", LINK, "--to", "b", "--environment", environment]
    running = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    with running, running.stderr as lines:
        is_reached = any(line.strip() == step for line in lines)
        running.kill()
    assert is_reached
    assert left_over(sites)
    known = epochs(sites)
    found = rehearsed(sites, tmp_path / "report")
    assert "had left" in found["steps"][0]["detail"]
    assert (epochs(sites), left_over(sites)) == (known, [])


def test_the_active_site_is_not_rehearsed(sites: EmbeddedSites, tmp_path: Path) -> None:
    done = sites.command("rehearse", LINK, "--to", "a", "--report-dir", str(tmp_path))
    assert done.returncode == 1
    assert "a is active for link" in done.stdout
