"""A site is lost with its disks: it is built anew, gets the link again, and is a standby from which
nothing is missing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

import pytest

from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import SECURED, add_user, command, quotas, set_quota, users
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.long]


async def cluster_id(sites: EmbeddedSites, site: str) -> str:
    channels = Channels()
    try:
        return (await SiteClient(site, sites.environment.sites[site].grpc, channels).view()).cluster_id
    finally:
        await channels.close()


def lose(sites: EmbeddedSites, site: str) -> None:
    """Kill all processes of a site and remove their data."""
    for process in (sites.broker(site), sites.zookeeper(site)):
        process.kill()
        for folder in process.child.directory.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)


async def build_anew(sites: EmbeddedSites, site: str, *, like: str) -> None:
    """Start a lost site with empty disks and the cluster id of the other one."""
    properties = sites.broker(site).child.directory / "server.properties"
    with properties.open("a", encoding="utf-8") as file:
        file.write(f"antipode.cluster.id={await cluster_id(sites, like)}\n")
    sites.restart(sites.zookeeper(site))
    sites.restart(sites.broker(site))


def the_link(sites: EmbeddedSites) -> tuple[dict[str, Any], list[str]]:
    """The link, and all problems, as `antipode status` has them."""
    document = json.loads(sites.command("status", "--output", "json").stdout)
    return document["links"][0], document["problems"]


async def test_a_site_that_is_lost_with_its_disks_is_built_anew_as_a_standby(start_sites: SitesStarter) -> None:
    sites = start_sites(*SECURED)
    await create_topic(sites)
    produce(sites, 100)
    librdkafka_consume(sites.bootstrap("a"), TOPIC, 100, group="readers")
    add_user(sites.bootstrap("a"), "alice")
    set_quota(sites, "a", "alice")
    assert await equal_ends(sites) == {(TOPIC, 0): 100}
    eventually_sync(lambda: users(sites.bootstrap("b")) == {"alice"})
    lose(sites, "a")
    refused = sites.command("links", "restore", "a-b", "--at", "a")
    assert (refused.returncode, "does not answer" in refused.stderr or "is the active site" in refused.stderr) == (
        1,
        True,
    )
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down")
    assert done.returncode == 0, done.stdout + done.stderr
    produce(sites, 70, site="b")
    await build_anew(sites, "a", like="b")
    eventually_sync(lambda: the_link(sites)[0]["lost_at"] == ["a"])
    _, problems = the_link(sites)
    assert "site a has no link a-b: if it has lost its data, antipode links restore a-b --at a" in problems
    (listed,) = (one for one in command(sites, "links", "list") if one["site"] == "b")
    assert (listed["is_peer_reachable"], listed["is_unknown_to_peer"]) == (True, True)
    eventually_sync(lambda: "no link 'a-b'" in the_link(sites)[0]["not_protected_because"])
    planned = command(sites, "links", "restore", "a-b", "--at", "a", "--dry-run")
    assert {one["outcome"] for one in planned["checks"]} <= {"ok", "warning"}
    assert the_link(sites)[0]["lost_at"] == ["a"]
    for _ in range(2):  # the second time nothing is left to do
        command(sites, "links", "restore", "a-b", "--at", "a")
    assert await equal_ends(sites) == {(TOPIC, 0): 170}
    eventually_sync(lambda: the_link(sites)[0]["protected_since_ms"] is not None)
    eventually_sync(lambda: users(sites.bootstrap("a")) == {"alice"})
    assert users(sites.bootstrap("b")) == {"alice"}
    back = sites.command("switchover", "a-b", "--to", "a")
    assert back.returncode == 0, back.stdout + back.stderr
    assert "alice" in quotas(sites, "a")
    produce(sites, 10)
    # the group goes on where it was before the loss
    records = await asyncio.to_thread(librdkafka_consume, sites.bootstrap("a"), TOPIC, 80, group="readers")
    assert [record.offset for record in records] == list(range(100, 180))
    assert await equal_ends(sites) == {(TOPIC, 0): 180}
