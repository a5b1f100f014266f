"""Batches with a right checksum and wrong insides at a pair of three brokers a site.

Leaders refuse them; followers, the mirror and the standby continue.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from runtime.clock import SystemClock
from tests.golden.records import codes_for
from tests.support.clients.kafka_clients import aiokafka_consume
from tests.support.clients.raw_client import RawClient
from tests.support.disks.mutated_batches import CASES, TOPICS, Case, at_time, batch, record
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.pairs.site_comparison import caught_up, site_client
from wire.batches.record_batch import read_header
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceResponse, TopicRecords

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

BROKERS = 3
NEIGHBOUR = "neighbour"
EVERY = 6
"""A lone broker gets all cases in a test of its own; a pair gets each sixth."""
GROWTH_BYTES_MAX = 50 * 1024 * 1024
LARGE = {"max.message.bytes": "10000000"}

Place = tuple[str, int]


def places_of(cases: list[Case]) -> dict[Place, Case]:
    """A partition of its own for each case."""
    numbers: dict[str, int] = defaultdict(int)
    places = {}
    for case in cases:
        places[case.topic, numbers[case.topic]] = case
        numbers[case.topic] += 1
    return places


def create_topics(sites: EmbeddedSites, places: dict[Place, Case]) -> None:
    """The topics with a replica on each broker, and the neighbour with a partition at each."""
    counts = {topic: sum(name == topic for name, _ in places) for topic in TOPICS}
    wanted = [
        NewTopic(topic, count, BROKERS, config={**LARGE, **TOPICS[topic]}) for topic, count in counts.items() if count
    ]
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a")})
    for future in admin.create_topics([*wanted, NewTopic(NEIGHBOUR, BROKERS, BROKERS)]).values():
        future.result(120)


async def leaders(sites: EmbeddedSites) -> dict[Place, int]:
    """The port of each partition's leader."""
    async with site_client(sites.bootstrap("a")) as client:
        names = [*TOPICS, NEIGHBOUR]
        metadata = await client.metadata(names)
        ports = {node_id: broker.address.port for node_id, broker in metadata.brokers.items()}
        return {
            (topic, index): ports[await client.leader(topic, index)]
            for topic in names
            if topic in metadata.topics
            for index in metadata.topics[topic].partitions
        }


def produced(client: RawClient, place: Place, case: Case, neighbour: int, good: bytes) -> ProduceResponse:
    """The answer to a request with the case and a sound batch for the neighbour's partition."""
    (topic, index), name = place, NEIGHBOUR
    return client.produce_all(
        [
            TopicRecords(topic, None, [PartitionRecords(index, case.records)]),
            TopicRecords(name, None, [PartitionRecords(neighbour, good)]),
        ]
    )


async def test_refused_batches_reach_neither_followers_nor_the_standby(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", str(BROKERS))
    places = places_of([case for case in CASES.values() if case.topic != "bounded"][::EVERY])
    create_topics(sites, places)
    ports = await leaders(sites)
    neighbours = {ports[NEIGHBOUR, index]: index for index in range(BROKERS)}
    assert len(neighbours) == BROKERS
    good = at_time(batch(record()), SystemClock().now_ms())
    processes = [psutil.Process(sites.broker(site, number).pid) for site in ("a", "b") for number in range(BROKERS)]
    before = [process.memory_info().rss for process in processes]
    expected: dict[Place, int] = {}
    with ExitStack() as connections:
        clients = {port: connections.enter_context(RawClient(port)) for port in neighbours}
        for place, case in places.items():
            port = ports[place]
            topics = produced(clients[port], place, case, neighbours[port], good).topics
            mutated, neighbour = (topic.partitions[0] for topic in topics)
            assert mutated.error_code in codes_for(case.name), case.name
            assert neighbour.error_code == 0
            expected[place] = read_header(case.records).record_count if mutated.error_code == 0 else 0
    ends = await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    assert {place: ends[place] for place in places} == expected
    for process, bytes_before in zip(processes, before, strict=True):
        assert process.memory_info().rss - bytes_before < GROWTH_BYTES_MAX
    assert sum(ends[NEIGHBOUR, index] for index in range(BROKERS)) == len(places)
    received = await aiokafka_consume(sites.bootstrap("b"), NEIGHBOUR, len(places))
    assert len(received) == len(places)
