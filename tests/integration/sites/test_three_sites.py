"""Two standbys of one site: when one of them is promoted, the other one follows it by itself,
without copying anew what it has.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.eventually import WITHIN_MS, eventually, eventually_sync
from tests.support.pairs.site_comparison import caught_up, site_client
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.raw_client import NewTopic

pytestmark = pytest.mark.integration

TOPIC = "orders"


def produce(sites: EmbeddedSites, count: int, *, site: str) -> None:
    records = [Record(value=b"%d at %s" % (number, site.encode()), partition=number % 2) for number in range(count)]
    librdkafka_produce(sites.bootstrap(site), TOPIC, records, settings={"acks": "all"})


def run(sites: EmbeddedSites, *arguments: str, code: int = 0) -> str:
    ended = sites.command(*arguments)
    assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
    return ended.stdout + ended.stderr


def links_at(sites: EmbeddedSites, site: str) -> dict[str, tuple[str, bool]]:
    """The active site of each link that a site has, and whether the role there is confirmed."""
    ended = sites.command("links", "list", "--output", "json")
    return {
        seen["link"]["name"]: (seen["link"]["active_site"], seen["is_confirmed"])
        for seen in json.loads(ended.stdout)
        if seen["site"] == site and "link" in seen
    }


def begun_at(mirror: RunningProcess, *, after: int) -> dict[str, int]:
    """The offset at which the mirror first began to copy each partition, by its log from position
    `after` on.
    """
    begun = re.findall(rf"mirroring from offset (\d+).* partition={TOPIC}-(\d)", mirror.log_text()[after:])
    return {partition: int(offset) for offset, partition in reversed(begun)}


def start_awaiting_mirror(
    sites: EmbeddedSites, processes: Processes, directory: Path, *, link: str, into: str
) -> RunningProcess:
    """A mirror of a link that its target site gets only with its promotion."""
    properties = directory / "awaiting.properties"
    lines = (
        f"link.name={link}",
        f"site.agents={sites.environment.sites[into].grpc[0]}",
        "antipode.link.awaited=true",
        "antipode.allow.plaintext=true",
    )
    properties.write_text("\n".join([*lines, ""]), encoding="utf-8")
    command = [sys.executable, "-m", "cli.main", "mirror", "--config", str(properties)]
    home = directory / "awaiting"
    home.mkdir()
    return processes.run_command("awaiting", command, home, {"PYTHONPATH": str(REPOSITORY)})


async def with_two_standbys(start_sites: SitesStarter, *arguments: str) -> EmbeddedSites:
    """Site a and its copies at b and c, all equal; b and c know each other."""
    sites = start_sites("--sites", "a,b,c", *arguments)
    async with site_client(sites.bootstrap("a")) as client:
        (outcome,) = await client.create_topics([NewTopic(name=TOPIC, partition_count=2)])
        assert not outcome.error_code, outcome
    produce(sites, 100, site="a")
    for standby in "bc":
        run(sites, "links", "alter", f"a-{standby}", "--reinstate", "automatic")
        await caught_up(sites.bootstrap("a"), sites.bootstrap(standby))
    eventually_sync(lambda: "c follows b if b is promoted" in sites.command("status").stdout)
    return sites


async def test_the_other_standby_follows_the_promoted_one_and_gives_up_only_its_own_end(
    start_sites: SitesStarter,
) -> None:
    sites = await with_two_standbys(start_sites)
    to_b, to_c = sites.process("mirror-a-b"), sites.process("mirror-a-c")
    to_b.kill()
    produce(sites, 20, site="a")
    await caught_up(sites.bootstrap("a"), sites.bootstrap("c"))
    sites.broker("a").kill()
    sites.restart(to_b)
    copied_before = len(to_c.log_text())
    run(sites, "failover", "a-b", "--to", "b", "--old-site-is-down", "--accept-data-loss")
    produce(sites, 50, site="b")

    ends = await caught_up(sites.bootstrap("b"), sites.bootstrap("c"), within_ms=WITHIN_MS)
    assert sum(ends.values()) == 150
    assert begun_at(to_c, after=copied_before) == {"0": 50, "1": 50}
    kept = json.loads(run(sites, "quarantine", "list", "--bootstrap-server", sites.bootstrap("c"), "--output", "json"))
    assert sum(entry["end_offset"] - entry["first_offset"] for entry in kept) == 20, kept
    await eventually(lambda: links_at(sites, "b").get("a-c") == ("b", True))

    sites.restart(sites.broker("a"))
    await eventually(lambda: set(links_at(sites, "a")) == {"a-b"})
    produce(sites, 10, site="a")
    for standby in "ac":
        ends = await caught_up(sites.bootstrap("b"), sites.bootstrap(standby), within_ms=WITHIN_MS)
        assert sum(ends.values()) == 160
    sites.stop()


async def test_the_other_standby_follows_under_a_lease(start_sites: SitesStarter) -> None:
    sites = await with_two_standbys(start_sites, "--arbiter")
    for process in (sites.broker("a"), sites.zookeeper("a")):
        process.kill()
    run(sites, "failover", "a-b", "--to", "b")
    produce(sites, 50, site="b")
    ends = await caught_up(sites.bootstrap("b"), sites.bootstrap("c"), within_ms=WITHIN_MS)
    assert sum(ends.values()) == 150
    # A role is confirmed under a lease by a permit of the arbiter alone.
    await eventually(lambda: links_at(sites, "b") == {"a-b": ("b", True), "a-c": ("b", True)})

    for process in (sites.zookeeper("a"), sites.broker("a")):
        sites.restart(process)
    await eventually(lambda: set(links_at(sites, "a")) == {"a-b"})
    produce(sites, 10, site="a")
    for standby in "ac":
        ends = await caught_up(sites.bootstrap("b"), sites.bootstrap(standby), within_ms=WITHIN_MS)
        assert sum(ends.values()) == 160
    sites.stop()


async def test_a_promoted_standby_is_a_standby_again_when_the_other_one_is_promoted_over_it(
    start_sites: SitesStarter, processes: Processes, tmp_path: Path
) -> None:
    sites = await with_two_standbys(start_sites)
    awaiting = start_awaiting_mirror(sites, processes, tmp_path, link="a-c", into="b")
    await eventually(lambda: "site b has no link 'a-c'" in awaiting.log_text())
    written = 100
    for link, active in (("a-b", "b"), ("a-c", "c")):
        await eventually(lambda link=link: link in links_at(sites, "b"))
        run(sites, "switchover", link, "--to", active)
        produce(sites, 50, site=active)
        written += 50
        for standby in sorted({"a", "b", "c"} - {active}):
            ends = await caught_up(sites.bootstrap(active), sites.bootstrap(standby), within_ms=WITHIN_MS)
            assert sum(ends.values()) == written, (active, standby)
        eventually_sync(lambda: "not protected" not in sites.command("status").stdout)
    assert links_at(sites, "b")["a-c"][0] == "c"
    sites.stop()


async def test_only_one_of_two_standbys_may_be_promoted_without_a_person(start_sites: SitesStarter) -> None:
    sites = start_sites("--sites", "a,b,c", "--arbiter")
    eventually_sync(lambda: all(links_at(sites, "a").get(f"a-{standby}") == ("a", True) for standby in "bc"))
    run(sites, "links", "alter", "a-b", "--failover", "automatic")
    refused = sites.command("links", "alter", "a-c", "--failover", "automatic")
    said = " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode == 1, said
    assert "failover mode 'automatic': link 'a-b' carries .* too and fails over by itself to b" in said
    run(sites, "links", "alter", "a-b", "--failover", "observe")
    run(sites, "links", "alter", "a-c", "--failover", "automatic")
    sites.stop()


@pytest.mark.long
async def test_every_standby_follows_planned_moves_there_and_back_and_to_the_second_standby(
    start_sites: SitesStarter,
) -> None:
    sites = await with_two_standbys(start_sites)
    written = 100
    for link, active in (("a-b", "b"), ("a-b", "a"), ("a-c", "c")):
        run(sites, "switchover", link, "--to", active)
        produce(sites, 50, site="a")
        written += 50
        for standby in sorted({"a", "b", "c"} - {active}):
            ends = await caught_up(sites.bootstrap(active), sites.bootstrap(standby), within_ms=WITHIN_MS)
            assert sum(ends.values()) == written, (active, standby)
    assert links_at(sites, "b")["a-b"][0] == "c"
    assert set(links_at(sites, "a")) == {"a-c"}
    assert json.loads(run(sites, "quarantine", "list", "-b", sites.bootstrap("b"), "--output", "json")) == []
    sites.stop()
