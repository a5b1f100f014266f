"""A byte that changes on a follower's disk is named with its broker by every command that reports
the state of a link, and is healed with the bytes of the follower's own site. Followers heal their
leader when both sites' leaders are damaged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sites.test_verified_until import BODY_POSITION, flip_a_bit_of_the_last_batch
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import link_of_status
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client

pytestmark = pytest.mark.integration

WITHIN_MS = 240_000
RECORDS = 10


async def follower_at(sites: EmbeddedSites, site: str) -> int:
    """The node id of a follower whose replica is in sync."""
    async with site_client(sites.bootstrap(site)) as client:
        found: list[int] = []

        async def is_in_sync() -> bool:
            partition = (await client.metadata([TOPIC])).topics[TOPIC].partitions[0]
            found[:] = [node for node in partition.isr if node != partition.leader_id]
            return len(partition.isr) == 3

        await eventually(is_in_sync)
    return found[0]


def segment_of(sites: EmbeddedSites, node_id: int) -> Path:
    """The segment file of the broker's replica."""
    return next(
        segment
        for segment in sites.directory.glob(f"sites/**/{TOPIC}-0/00000000000000000000.log")
        if f"broker.id={node_id}\n" in (segment.parents[1] / "meta.properties").read_text()
    )


async def leader_at(sites: EmbeddedSites, site: str) -> int:
    async with site_client(sites.bootstrap(site)) as client:
        return int((await client.metadata([TOPIC])).topics[TOPIC].partitions[0].leader_id)


async def test_a_leader_is_healed_by_its_followers_when_the_other_site_cannot(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3", "--broker-config", "antipode.log.scrub.interval.ms=500")
    await create_topic(sites)
    produce(sites, RECORDS)
    assert await equal_ends(sites) == {(TOPIC, 0): RECORDS}
    segments = {}
    for site in ("a", "b"):
        await follower_at(sites, site)  # all replicas are in sync
        segment = segment_of(sites, await leader_at(sites, site))
        segments[segment] = segment.read_bytes()
        flip_a_bit_of_the_last_batch(segment, BODY_POSITION)

    def orders() -> list[dict[str, Any]]:
        planned = sites.command("repair", "a-b", "--dry-run", "--output", "json")
        document = json.loads(planned.stdout) if planned.stdout else {"orders": []}
        return list(document["orders"])

    eventually_sync(lambda: len(orders()) == len(segments), WITHIN_MS)
    assert {(one["site"], one["from_site"]) for one in orders()} == {("a", "a"), ("b", "b")}
    assert all("a follower, fits its checksum" in one["reason"] for one in orders())
    done = sites.command("repair", "a-b", "--yes", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    for segment, sound in segments.items():
        assert segment.read_bytes() == sound
    eventually_sync(lambda: not link_of_status(sites)["not_proven_because"], WITHIN_MS)


async def test_damage_on_a_followers_disk_is_named_and_healed(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3", "--broker-config", "antipode.log.scrub.interval.ms=500")
    await create_topic(sites)
    produce(sites, RECORDS)
    assert await equal_ends(sites) == {(TOPIC, 0): RECORDS}
    for site in ("b", "a"):
        node_id = await follower_at(sites, site)
        segment = segment_of(sites, node_id)
        sound = segment.read_bytes()
        flip_a_bit_of_the_last_batch(segment, BODY_POSITION)
        place = f"{TOPIC}-0 at site {site}: the batch at offsets"
        where = f"to {RECORDS - 1} is damaged on the disk of broker {node_id}, a follower"

        def is_named(place: str = place, where: str = where) -> bool:
            done = sites.command("reconcile", "--link", "a-b", "--quick")
            text = " ".join(done.stdout.split())
            return done.returncode == 2 and place in text and where in text

        eventually_sync(is_named, WITHIN_MS)
        eventually_sync(lambda where=where: where in link_of_status(sites)["not_proven_because"], WITHIN_MS)
        checks = json.loads(sites.command("links", "check", "a-b", "--output", "json").stdout)["checks"]
        (proof,) = [one for one in checks if one["check"] == "proof"]
        assert (proof["outcome"], where in proof["detail"]) == ("warning", True), proof
        planned = sites.command("repair", "a-b", "--dry-run")
        assert f"on the disk of broker {node_id}" in " ".join(planned.stdout.split()), planned.stdout + planned.stderr
        assert segment.read_bytes() != sound
        done = sites.command("repair", "a-b", "--yes", "--output", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        (order,) = json.loads(done.stdout)["orders"]
        assert (order["action"], order["site"], order["from_site"]) == ("replace", site, site)
        assert (order["node_id"], order["last_offset"], order["is_done"]) == (node_id, RECORDS - 1, True)
        assert segment.read_bytes() == sound
        eventually_sync(lambda: not link_of_status(sites)["not_proven_because"], WITHIN_MS)
