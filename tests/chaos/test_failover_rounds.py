"""Two sites that change places again and again under one load that goes on all the time.

Promised: on a sync link, the loss of the active site with kill -9 at any moment and a failover lose
no record that was acknowledged with acks=all, however often it happens; after planned moves there
and back both sites are equal byte for byte. Each record is there once, in order, at the offset that
was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import WITHIN_MS, eventually_sync
from tests.support.pairs.site_comparison import caught_up, site_client
from wire.client.raw_client import NewTopic

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(14_400)]

TOPIC = "orders"
PARTITIONS = 4
KILLS = 100
MOVES_THERE_AND_BACK = 10
BETWEEN_MAX = 300
"""Records that are acknowledged, at most, between a site's return and its loss."""
MESSAGE_TIMEOUT_MS = 600_000
"""A producer does not give up a record while a round lasts."""


@pytest.fixture
def start_sites(tmp_path: Path) -> Iterator[SitesStarter]:
    starter = SitesStarter(tmp_path)
    try:
        yield starter
    finally:
        starter.end_all()


async def started_load(sites: EmbeddedSites) -> AcknowledgedLoad:
    """A load that knows the brokers of both sites."""
    async with site_client(sites.bootstrap("a")) as client:
        (outcome,) = await client.create_topics([NewTopic(name=TOPIC, partition_count=PARTITIONS)])
        assert not outcome.error_code, outcome
    both = f"{sites.bootstrap('a')},{sites.bootstrap('b')}"
    settings = {"message.timeout.ms": MESSAGE_TIMEOUT_MS}
    return AcknowledgedLoad(both, TOPIC, PARTITIONS, records_per_second=200, settings=settings)


def succeeded(sites: EmbeddedSites, *arguments: str) -> str:
    ended = sites.command(*arguments)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended.stdout


def is_protected(sites: EmbeddedSites) -> bool:
    """The standby has everything, and the link's sync policy is in force."""
    (link,) = json.loads(sites.command("status", "--output", "json").stdout)["links"]
    return link["protected_since_ms"] is not None and not link["suspended_sync"] and link["mirror"] == "MIRRORING"


async def test_the_active_site_is_killed_again_and_again_and_a_sync_link_loses_no_acknowledged_record(
    start_sites: SitesStarter,
) -> None:
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    kills = int(os.environ.get("ANTIPODE_FAULTS") or KILLS)
    print(f"ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    sites = start_sites("--sync", "block")
    succeeded(sites, "links", "alter", LINK, "--reinstate", "automatic")
    active, standby = "a", "b"
    with await started_load(sites) as load:
        for number in range(kills):
            eventually_sync(lambda: is_protected(sites))
            load.wait_acknowledged(chance.randint(1, BETWEEN_MAX), WITHIN_MS)
            print(f"{number}: {active} is killed after {load.acknowledged} records", flush=True)
            sites.broker(active).kill()
            succeeded(sites, "failover", LINK, "--to", standby, "--old-site-is-down", "--accept-data-loss")
            load.wait_acknowledged(1, WITHIN_MS)
            sites.restart(sites.broker(active))
            active, standby = standby, active
        load.finish(WITHIN_MS)
        await caught_up(sites.bootstrap(active), sites.bootstrap(standby), within_ms=WITHIN_MS)
        for site in "ab":
            await load.check_log(sites.bootstrap(site))


async def test_ten_moves_there_and_back_under_load_leave_both_sites_equal(start_sites: SitesStarter) -> None:
    sites = start_sites()
    with await started_load(sites) as load:
        for number in range(MOVES_THERE_AND_BACK):
            for to in "ba":
                eventually_sync(lambda: is_protected(sites))
                load.wait_acknowledged(BETWEEN_MAX, WITHIN_MS)
                print(f"{number}: {to} becomes active after {load.acknowledged} records", flush=True)
                moved = json.loads(succeeded(sites, "switchover", LINK, "--to", to, "--output", "json"))
                assert (moved["account"]["is_exact"], moved["account"]["known_lost_records"]) == (True, 0)
        load.finish(WITHIN_MS)
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"), within_ms=WITHIN_MS)
        for site in "ab":
            await load.check_log(sites.bootstrap(site))
    sites.stop()
