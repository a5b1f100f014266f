"""A link of embedded sites protects its active site in both directions, without a person."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest

from runtime.clock import SystemClock
from runtime.times import iso_time
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import link_status
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def checked(sites: EmbeddedSites) -> CompletedProcess[str]:
    return sites.command("links", "check", "a-b", "--output", "json")


def await_protected(sites: EmbeddedSites, active: str) -> None:
    def is_protected() -> bool:
        found = link_status(sites)
        return found["active_site"] == active and found["protected_since_ms"] is not None

    eventually_sync(is_protected)


async def test_after_a_promotion_the_other_site_protects_the_new_active_one_by_itself(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 100)
    await_protected(sites, "a")
    assert "protected since" in sites.command("status").stdout
    checks = {one["check"]: one["outcome"] for one in json.loads(checked(sites).stdout)["checks"]}
    assert (checks["mirror"], checks["mirror back"]) == ("ok", "ok")
    begins_at = iso_time(SystemClock().now_ms() + 20_000)
    done = sites.command("switchover", "a-b", "--to", "b", "--at", begins_at)
    assert done.returncode == 0, done.stderr
    assert "it could begin now" in done.stderr
    await_protected(sites, "b")
    produce(sites, 50, site="b")
    assert await equal_ends(sites) == {(TOPIC, 0): 150}
    found = link_status(sites)
    assert (found["mirror"], found["resting_mirror"]) == ("MIRRORING", "PROMOTED")
    done = sites.command("failover", "a-b", "--to", "a")
    assert done.returncode == 0, done.stderr
    await_protected(sites, "a")
    sites.stop()


@pytest.mark.long
async def test_a_site_that_does_not_answer_is_abandoned_only_where_it_is_declared_down(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 100)
    await_protected(sites, "a")
    sites.broker("a").kill()
    planned = sites.command("switchover", "a-b", "--to", "b")
    assert planned.returncode == 1
    assert "a switchover needs both sites" in planned.stdout
    refused = sites.command("failover", "a-b", "--to", "b")
    assert refused.returncode == 1
    assert "nothing proves that it is down" in refused.stdout
    assert "a, the active site, does not answer" in link_status(sites)["not_protected_because"]
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down")
    assert done.returncode == 0, done.stderr
    produce(sites, 10, site="b")
    sites.restart(sites.broker("a"))
    await_protected(sites, "b")
    assert await equal_ends(sites) == {(TOPIC, 0): 110}
    sites.stop()


@pytest.mark.long
async def test_without_its_mirror_a_link_is_not_protected_and_the_reason_says_what_to_do(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites()
    await create_topic(sites)
    await_protected(sites, "a")
    sites.mirror.stop()
    eventually_sync(lambda: "no mirror that carries all" in link_status(sites)["not_protected_because"])
    assert "antipode mirror --config FILE, with link.name=a-b" in link_status(sites)["not_protected_because"]
    produce(sites, 10)
    sites.restart(sites.mirror)
    await_protected(sites, "a")
    sites.stop()
