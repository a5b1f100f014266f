"""Retention at the active site keeps records that the standby lacks, and continues when the standby
has them.
"""

from __future__ import annotations

import json
import urllib.request

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.transactional_clients import WITHIN_S
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, produce
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import log_ends, site_client
from wire.client.raw_client import NewTopic

pytestmark = pytest.mark.integration

RECORDS = 10


def with_setting(sites: EmbeddedSites, line: str) -> None:
    """Restart the broker of site a with one more line in its file."""
    broker = sites.broker("a")
    broker.stop()
    with (broker.child.directory / "server.properties").open("a", encoding="utf-8") as properties:
        properties.write(f"{line}\n")
    sites.restart(broker)


def log_start(sites: EmbeddedSites, site: str = "a") -> int:
    consumer = Consumer({"bootstrap.servers": sites.bootstrap(site), "group.id": "looks"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WITHIN_S)[0])
    finally:
        consumer.close()


def figure(sites: EmbeddedSites, name: str) -> float:
    """A metric without labels of the broker of site a."""
    (page,) = sites.environment.sites["a"].metrics
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=WITHIN_S) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def standby_has(sites: EmbeddedSites, end: int) -> bool:
    async with site_client(sites.bootstrap("b")) as client:
        return (await log_ends(client)).get((TOPIC, 0)) == end


async def test_records_that_the_standby_lacks_outlive_their_retention(start_sites: SitesStarter) -> None:
    sites = start_sites()
    with_setting(sites, "log.retention.check.interval.ms=200")
    async with site_client(sites.bootstrap("a")) as client:
        topic = NewTopic(name=TOPIC, partition_count=1, configs={"retention.ms": "1"})
        (outcome,) = await client.create_topics([topic])
        assert not outcome.error_code, outcome
    produce(sites, RECORDS)
    eventually_sync(lambda: log_start(sites) == RECORDS)  # the standby has these
    sites.mirror.stop()
    produce(sites, RECORDS)
    eventually_sync(lambda: figure(sites, "antipode_broker_link_hold_bytes") > 0)
    assert figure(sites, "antipode_broker_link_hold_partitions") == 1
    assert figure(sites, "antipode_broker_link_hold_given_up_bytes_total") == 0
    assert log_start(sites) == RECORDS
    sites.restart(sites.mirror)
    await eventually(lambda: standby_has(sites, 2 * RECORDS))
    eventually_sync(lambda: log_start(sites) == 2 * RECORDS)
    (link,) = json.loads(sites.command("links", "status", "a-b", "--output", "json").stdout)["links"]
    assert link["mirror"] == "MIRRORING"
    sites.stop()


@pytest.mark.long
async def test_the_hold_ends_at_its_bound(start_sites: SitesStarter) -> None:
    sites = start_sites()
    with_setting(sites, "log.retention.check.interval.ms=200\nantipode.link.hold.max.bytes=1")
    async with site_client(sites.bootstrap("a")) as client:
        topic = NewTopic(name=TOPIC, partition_count=1, configs={"retention.ms": "1"})
        (outcome,) = await client.create_topics([topic])
        assert not outcome.error_code, outcome
    sites.mirror.stop()
    produce(sites, RECORDS)
    eventually_sync(lambda: log_start(sites) == RECORDS)
    assert figure(sites, "antipode_broker_link_hold_given_up_bytes_total") > 0
    sites.stop()
