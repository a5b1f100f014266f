"""One topic at embedded sites: made, written to, and compared between the sites."""

from __future__ import annotations

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites
from tests.support.pairs.site_comparison import caught_up, site_client
from wire.client.raw_client import NewTopic

TOPIC = "flights"


async def create_topic(sites: EmbeddedSites, partitions: int = 1, *, site: str = "a", name: str = TOPIC) -> None:
    """Create the topic at a site."""
    async with site_client(sites.bootstrap(site)) as client:
        (outcome,) = await client.create_topics([NewTopic(name=name, partition_count=partitions)])
        assert not outcome.error_code, outcome


def produce(sites: EmbeddedSites, count: int, *, site: str = "a", partitions: int = 1) -> None:
    """Write so many records with acks=all, over the partitions in turn."""
    records = [Record(value=f"{number}".encode(), partition=number % partitions) for number in range(count)]
    librdkafka_produce(sites.bootstrap(site), TOPIC, records, settings={"acks": "all"})


async def equal_ends(sites: EmbeddedSites) -> dict[tuple[str, int], int]:
    """The ends of all partitions, once both sites have the same."""
    return await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
