"""A planned failover of healthy sites is not refused, also if epochs began without a record."""

from __future__ import annotations

import json

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.pairs.site_comparison import caught_up, site_client
from wire.client.raw_client import NewTopic

pytestmark = pytest.mark.integration


async def create_topic(sites: EmbeddedSites, name: str, *, site: str = "a", partitions: int = 1) -> None:
    async with site_client(sites.bootstrap(site)) as client:
        (outcome,) = await client.create_topics([NewTopic(name=name, partition_count=partitions)])
        assert not outcome.error_code, outcome


def produce(sites: EmbeddedSites, topic: str, *, site: str = "a") -> None:
    records = [Record(value=b"%d" % number, partition=0) for number in range(10)]
    librdkafka_produce(sites.bootstrap(site), topic, records, settings={"acks": "all"})


def failed_over(sites: EmbeddedSites, to: str) -> None:
    """Fail over without a loss."""
    ended = sites.command("failover", "a-b", "--to", to, "--output", "json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert (report["outcome"], report["account"]["is_exact"]) == ("done", True)
    assert report["account"]["known_lost_records"] == 0


async def test_topics_without_a_record_do_not_hinder_it(start_sites: SitesStarter) -> None:
    sites = start_sites()
    await create_topic(sites, "empty", partitions=6)
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    failed_over(sites, "b")
    sites.stop()


@pytest.mark.long
@pytest.mark.parametrize("site", ["a", "b"])
async def test_a_restart_after_the_last_record_does_not_hinder_it(start_sites: SitesStarter, site: str) -> None:
    sites = start_sites()
    await create_topic(sites, "orders", partitions=2)
    produce(sites, "orders")
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    broker = sites.broker(site)
    broker.kill()
    sites.restart(broker)
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    failed_over(sites, "b")
    produce(sites, "orders", site="b")
    sites.stop()
