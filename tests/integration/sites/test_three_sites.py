"""Two standbys of one site: when one of them is promoted, the other one follows it, without copying
anew what it has.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import caught_up, site_client
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


async def with_two_standbys(start_sites: SitesStarter) -> EmbeddedSites:
    """Site a and its copies at b and c, all equal."""
    sites = start_sites("--sites", "a,b,c")
    async with site_client(sites.bootstrap("a")) as client:
        (outcome,) = await client.create_topics([NewTopic(name=TOPIC, partition_count=2)])
        assert not outcome.error_code, outcome
    produce(sites, 100, site="a")
    for standby in "bc":
        await caught_up(sites.bootstrap("a"), sites.bootstrap(standby))
    return sites


@pytest.mark.long
async def test_a_standby_whose_source_was_made_passive_does_not_look_well(start_sites: SitesStarter) -> None:
    sites = await with_two_standbys(start_sites)
    eventually_sync(lambda: "all is well" in run(sites, "status"))
    run(sites, "failover", "a-b", "--to", "b")
    produce(sites, 50, site="b")

    def is_told() -> bool:
        said = json.loads(run(sites, "status", "--output", "json", code=1))
        (link,) = [link for link in said["links"] if link["name"] == "a-c"]
        return (
            any("link a-c: not protected because site a is passive for orders" in one for one in said["problems"])
            and link["mirror"] == "SOURCE_UNAVAILABLE"
            and link["lag_ms"] != 0
        )

    await eventually(is_told)
    assert "its site is not active for it" in sites.process("mirror-a-c").log_text()
    refused = run(sites, "failover", "a-c", "--to", "c", "--accept-data-loss", code=1)
    assert "since link a-b made b active" in refused
    assert "promoting c would make two sites active" in refused
    sites.stop()


async def test_the_other_standby_follows_the_promoted_one(start_sites: SitesStarter) -> None:
    sites = await with_two_standbys(start_sites)
    sites.broker("a").kill()
    run(sites, "failover", "a-b", "--to", "b", "--accept-data-loss")
    produce(sites, 50, site="b")

    addresses = {name: site["link_bootstrap_servers"] for name, site in sites.document["sites"].items()}
    creation = ("links", "create", "b-c", "--source", "b", "--target", "c")
    creation += ("--source-bootstrap", addresses["b"], "--target-bootstrap", addresses["c"])
    checked = json.loads(run(sites, *creation, "--dry-run", "--output", "json", code=1).splitlines()[0])
    found = {check["check"]: check for check in checked["checks"]}
    assert found["links"]["outcome"] == "refused"
    assert "site c: link 'a-c' carries orders already" in found["links"]["detail"]

    run(sites, "links", "delete", "a-c", "--yes", "--skip-unreachable")
    run(sites, *creation)
    mirror = sites.process("mirror-a-c")
    mirror.child.stop(timeout_ms=30_000)
    file = mirror.child.directory / "mirror.properties"
    properties = file.read_text(encoding="utf-8").replace("link.name=a-c", "link.name=b-c")
    file.write_text(re.sub("source.bootstrap.servers=.*", "", properties), encoding="utf-8")
    said_before = len(mirror.log_text())
    sites.restart(mirror)
    ends = await caught_up(sites.bootstrap("b"), sites.bootstrap("c"))
    assert sum(ends.values()) == 150
    begun = re.findall(rf"mirroring from offset (\d+).* partition={TOPIC}-(\d)", mirror.log_text()[said_before:])
    first_begun_at = {partition: int(offset) for offset, partition in reversed(begun)}
    assert first_begun_at == {"0": 50, "1": 50}

    sites.restart(sites.broker("a"))
    run(sites, "links", "delete", "a-c", "--yes")
    produce(sites, 10, site="b")
    assert sum((await caught_up(sites.bootstrap("b"), sites.bootstrap("c"))).values()) == 160
    sites.stop()


@pytest.mark.long
async def test_a_planned_move_to_the_second_standby_makes_the_former_site_passive(start_sites: SitesStarter) -> None:
    """Link a-b, first by name, still calls a active: the link that was moved decides."""
    sites = await with_two_standbys(start_sites)
    checked = json.loads(run(sites, "links", "check", "a-c", "--output", "json"))
    assert (checked["missing_records"], checked["problems"]) == (0, [])
    run(sites, "switchover", "a-c", "--to", "c")
    produce(sites, 50, site="a")
    ends = await caught_up(sites.bootstrap("c"), sites.bootstrap("a"))
    assert sum(ends.values()) == 150
    sites.stop()
