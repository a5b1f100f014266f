"""A byte that changed on a disk and a standby's log with another history are found and repaired.
The removed records are in quarantine, and a comparison proves the sites equal.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from dr.proof.site_digests import new_client
from tests.integration.sites.test_verified_until import BODY_POSITION, CRC_POSITION, flip_a_bit_of_the_last_batch
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import FRONT_DOOR, REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.eventually import eventually_sync
from wire.client.requests.group_requests import CommittedOffset

pytestmark = pytest.mark.integration

WITHIN_MS = 120_000
RECORDS = 5_000


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path_factory.mktemp("repair"))
    try:
        yield starter("--broker-config", "antipode.log.scrub.interval.ms=500")
    finally:
        starter.end_all()


@pytest.fixture
async def ends(sites: EmbeddedSites) -> int:
    """The end of the topic's only log at both sites."""
    if not segments(sites, "a"):
        await create_topic(sites)
        produce(sites, RECORDS)
    return (await equal_ends(sites))[TOPIC, 0]


def segments(sites: EmbeddedSites, site: str) -> list[Path]:
    return list(sites.directory.glob(f"sites/{site}/**/{TOPIC}-0/00000000000000000000.log"))


def content(sites: EmbeddedSites, site: str) -> bytes:
    (segment,) = segments(sites, site)
    return segment.read_bytes()


def repaired(sites: EmbeddedSites, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = sites.command("repair", "a-b", "--yes", "--output", "json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def quick(sites: EmbeddedSites) -> str:
    done = sites.command("reconcile", "--link", "a-b", "--quick", "--output", "json")
    return str(json.loads(done.stdout)["verdict"])


def entries(sites: EmbeddedSites, site: str) -> dict[str, Any]:
    done = sites.command("quarantine", "list", "-b", sites.bootstrap(site), "--output", "json")
    return {entry["name"]: entry for entry in json.loads(done.stdout)}


def kill_at(sites: EmbeddedSites, findings: Path, step: str) -> None:
    """kill -9 a repair when it reports this step."""
    process = subprocess.Popen(
        [*FRONT_DOOR, "repair", "a-b", "--yes", "--findings", str(findings)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "ANTIPODE_ENVIRONMENT": str(sites.directory / "environment.json")},
    )
    assert process.stderr is not None
    assert any(step in line for line in process.stderr)
    process.kill()
    process.communicate()


async def commit_at_standby(sites: EmbeddedSites, offsets: dict[str, int]) -> None:
    """Write offsets of groups by the mirror's request: the standby takes them by no other one."""
    async with new_client(sites.bootstrap("b")) as client:
        for group, offset in offsets.items():
            wanted = {(TOPIC, 0): CommittedOffset(offset)}
            outcomes = await client.mirror_offset_commit(group, wanted, link="a-b", link_epoch=1)
            assert set(outcomes.values()) == {ErrorCode.none}


async def committed_at_standby(sites: EmbeddedSites, groups: list[str]) -> dict[str, int]:
    async with new_client(sites.bootstrap("b")) as client:
        return {group: (await client.committed(group))[TOPIC, 0].offset for group in groups}


@pytest.mark.parametrize(
    ("site", "position", "verdict"),
    [
        ("b", BODY_POSITION, "could not compare"),
        ("a", CRC_POSITION, "different"),
        pytest.param("a", BODY_POSITION, "could not compare", marks=pytest.mark.long),
        pytest.param("b", CRC_POSITION, "different", marks=pytest.mark.long),
    ],
)
async def test_a_byte_that_changed_on_a_disk_is_healed_with_the_other_sites_bytes(
    sites: EmbeddedSites, ends: int, site: str, position: int, verdict: str
) -> None:
    (segment,) = segments(sites, site)
    produce(sites, 1)  # the damaged batch of the last test has left the end of a leaf
    assert (await equal_ends(sites))[TOPIC, 0] == ends + 1
    before = content(sites, site)
    flip_a_bit_of_the_last_batch(segment, position)

    def is_found() -> bool:
        return quick(sites) in (verdict, "could not compare")

    eventually_sync(is_found, WITHIN_MS)
    planned = repaired(sites, "--dry-run")
    assert [(one["action"], one["site"], one["is_done"]) for one in planned["orders"]] == [("replace", site, False)]
    assert content(sites, site) != before
    found = repaired(sites)
    (order,) = found["orders"]
    assert (order["first_offset"], order["last_offset"], order["is_done"]) == (ends, ends, True)
    assert (found["is_healed"], found["verdict"], quick(sites)) == (True, "equal", "equal")
    assert content(sites, site) == before
    (name,) = order["entries"]
    assert entries(sites, site)[name]["kind"] == "damaged"
    again = repaired(sites)
    assert (again["orders"], again["is_healed"]) == ([], True)


async def test_a_standby_with_another_history_is_refused_then_trusted_and_healed(
    sites: EmbeddedSites, ends: int
) -> None:
    broker = sites.broker("b")
    sites.mirror.stop()
    broker.kill()
    (segment,) = segments(sites, "b")
    end = len(content(sites, "a"))
    foreign = batch([b"foreign"] * 3, base_offset=ends)
    with segment.open("r+b") as file:
        file.seek(end)
        file.write(foreign)
    sites.restart(broker)
    produce(sites, 10)
    beyond, within = ends + 3, ends - 1
    await commit_at_standby(sites, {"beyond": beyond, "within": within})
    sites.restart(sites.mirror)
    refused = repaired(sites, code=1)
    assert [one["first_offset"] for one in refused["refused"]] == [ends]
    assert "either site could be right" in refused["refused"][0]["reason"]
    assert content(sites, "b").endswith(foreign)
    found = repaired(sites, "--trust", "a")
    (order,) = found["orders"]
    assert (order["action"], order["site"], order["first_offset"], order["last_offset"]) == (
        "truncate",
        "b",
        ends,
        ends + 2,
    )
    assert (found["is_healed"], quick(sites)) == (True, "equal")
    # the offsets beyond the cut hold other records: the group would skip them after a failover
    assert await committed_at_standby(sites, ["beyond", "within"]) == {"beyond": ends, "within": within}
    assert (await equal_ends(sites))[TOPIC, 0] == ends + 10
    assert content(sites, "b") == content(sites, "a")
    entry = entries(sites, "b")[order["entries"][0]]
    assert (entry["first_offset"], entry["end_offset"], entry["kind"]) == (ends, ends + 3, "reinstated")


async def test_a_repair_that_is_killed_between_its_steps_is_finished_by_the_next(
    sites: EmbeddedSites, ends: int, tmp_path: Path
) -> None:
    """Each site has one order. The first one is done or under way at the kill."""
    first_at = len(content(sites, "a"))
    for _ in range(2):
        produce(sites, 1)
    ends += 2
    assert (await equal_ends(sites))[TOPIC, 0] == ends
    sound = content(sites, "a")
    with segments(sites, "a")[0].open("r+b") as file:
        file.seek(first_at + BODY_POSITION)
        file.write(bytes([sound[first_at + BODY_POSITION] ^ 1]))
    flip_a_bit_of_the_last_batch(segments(sites, "b")[0], BODY_POSITION)
    findings = tmp_path / "report.json"
    named = [{"topic": TOPIC, "partition": 0, "first_offset": ends - 2, "last_offset": ends - 1}]
    findings.write_text(json.dumps({"findings": named}))
    assert len(repaired(sites, "--findings", str(findings), "--dry-run")["orders"]) == 2
    for step in ("replacing", "comparing"):
        kill_at(sites, findings, step)
    assert repaired(sites, "--findings", str(findings))["is_healed"]
    assert content(sites, "a") == content(sites, "b") == sound


async def test_a_report_says_where_to_look_and_impossible_repairs_are_named(
    sites: EmbeddedSites, ends: int, tmp_path: Path
) -> None:
    (segment,) = segments(sites, "b")
    flip_a_bit_of_the_last_batch(segment, CRC_POSITION)
    findings = tmp_path / "report.json"
    named = {"topic": TOPIC, "partition": 0, "first_offset": ends - 1, "last_offset": ends - 1}
    findings.write_text(json.dumps({"findings": [named]}))
    assert repaired(sites, "--findings", str(findings))["is_healed"]
    assert content(sites, "b") == content(sites, "a")
    for arguments, said in (
        (("a-b", "--trust", "b", "--yes"), "accepted: a"),
        (("c-d",), "is not in the environment"),
    ):
        done = sites.command("repair", *arguments)
        assert done.returncode == 1
        assert said in " ".join(done.stderr.split())
