"""Several sources mirrored into one target: the origin of every record is known there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import create_topic, produce_batches, start_translate_mirror, wait_equal
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

SOURCES = ("north", "south", "west")


async def test_three_sources_lie_apart_at_one_target(processes: Processes, tmp_path: Path) -> None:
    """DR-16: local clusters, gathered at a cluster for analysis. The prefix of a topic names the
    origin of each of its records.
    """
    sites = await asyncio.gather(*(start_lone_site(processes, tmp_path, name) for name in (*SOURCES, "gathered")))
    target = sites[-1].bootstrap
    for number, (name, site) in enumerate(zip(SOURCES, sites, strict=False)):
        await create_topic(site.bootstrap, "orders", 2)
        await produce_batches(site.bootstrap, "orders", 0, 100 * number, 3 + number)
        settings = {
            "link.name": f"{name}-gathered",
            "source.alias": name,
            "target.alias": "gathered",
            "whitelist": "orders",
        }
        start_translate_mirror(processes, tmp_path, f"{name}-mirror", site.bootstrap, target, settings)
    for name, site in zip(SOURCES, sites, strict=False):
        await wait_equal(site.bootstrap, target, "orders", 2, target_topic=f"{name}.orders")
    for number, (name, site) in enumerate(zip(SOURCES, sites, strict=False)):
        await produce_batches(site.bootstrap, "orders", 1, 100 * number, 2)
        await wait_equal(site.bootstrap, target, "orders", 2, target_topic=f"{name}.orders")
    async with KafkaClient(target) as client:
        topics = set((await client.metadata()).topics)
    assert {name for name in topics if name.endswith("orders")} == {f"{name}.orders" for name in SOURCES}
