"""Three brokers, three replicas, acks=all: any process may die or be paused, and no acknowledged record is lost, doubled or moved.

Unavailability is measured and printed (`-s` shows it), never asserted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.acknowledged_load import AcknowledgedLoad
from tests.support.processes import Processes
from tests.support.replicated_site import ReplicatedSite

pytestmark = pytest.mark.integration

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect)


def tell(what: str, load: AcknowledgedLoad, since: float) -> None:
    """Print how long the partitions were silent."""
    shown = ", ".join(f"{silence:.0f}" for silence in load.silences_ms(since))
    print(f"{what}: longest silence by partition {shown} ms")


async def check(site: ReplicatedSite, load: AcknowledgedLoad) -> None:
    """Everything acknowledged is there once and in order, and the replicas are the same bytes."""
    load.finish()
    site.wait_in_sync(TOPIC)
    await load.check_log(site.bootstrap)
    site.wait_equal(TOPIC, PARTITIONS)


async def test_every_replica_has_the_same_bytes(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(1000)
        await check(site, load)


def a_leader(site: ReplicatedSite) -> int:
    return next(node for node in site.leaders(TOPIC).values() if node != site.controller())


def a_follower(site: ReplicatedSite) -> int:
    return next(node for node in site.nodes if node != site.leaders(TOPIC)[0] and node != site.controller())


@pytest.mark.parametrize("victim_of", [a_leader, a_follower, ReplicatedSite.controller])
async def test_kill_9_loses_nothing(site: ReplicatedSite, victim_of: Callable[[ReplicatedSite], int]) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        victim = site.nodes[victim_of(site)]
        since = time.monotonic()
        victim.process.kill()
        load.wait_acknowledged(1000)
        tell(f"kill -9 of {victim_of.__name__}", load, since)
        victim.restart()
        load.wait_acknowledged(500)
        await check(site, load)
