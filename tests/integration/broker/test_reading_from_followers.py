"""Consumers and workers of Spark read from the replica in their rack (KIP-392): three brokers in
three racks, a follower that dies while it is read from.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.connector.fetching import RACK_VARIABLE, RangeReader
from spark_jobs.logs.core.cluster_options import ClusterOptions
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, ReplicatedSite
from tests.support.sites.site_node import SiteNode

pytestmark = pytest.mark.integration

TOPIC = "orders"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, {**CALM, "replica.selector.class": SELECTOR})


def a_follower(site: ReplicatedSite) -> SiteNode:
    leader = site.leaders(TOPIC)[0]
    return site.nodes[next(node for node in NODES if node != leader)]


def produce(site: ReplicatedSite, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(120) == 0


def consumer_in(site: ReplicatedSite, rack: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": f"readers-{rack}",
            "client.rack": rack,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    return consumer


def take(consumer: Consumer, count: int) -> list[int]:
    """The next records' numbers."""
    found: list[int] = []

    def has_all() -> bool:
        for message in consumer.consume(count - len(found), timeout=0.2):
            assert message.error() is None or message.error().retriable(), message.error()
            if message.error() is None:
                found.append(int(message.value()))
        return len(found) >= count

    eventually_sync(has_all)
    return found


def bytes_out(node: SiteNode) -> float:
    return node.figure(BYTES_OUT, topic=TOPIC)


def wait_read_from(node: SiteNode) -> None:
    """Await the count: a broker counts bytes after it has sent them, so a reader may have them
    before.
    """
    eventually_sync(lambda: bytes_out(node) > 0)


def brokers_read_by_a_worker_of_spark(site: ReplicatedSite, until_offset: int) -> list[int]:
    """The brokers that a task of the data source has read from, by the rack of its process."""
    wanted = OffsetRange(topic=TOPIC, partition=0, first_offset=0, until_offset=until_offset)
    reader = RangeReader(ClusterOptions(bootstrap=site.bootstrap), wanted, fetch_bytes=1_000_000)
    assert sum(len(chunk.records) for chunk in reader.chunks()) > 0
    return reader.node_ids


def test_librdkafka_reads_from_its_rack_and_goes_on_elsewhere_when_that_replica_dies(
    site: ReplicatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(TOPIC, 1)
    near = a_follower(site)
    produce(site, 0, 2000)
    consumer = consumer_in(site, f"rack-{near.node_id}")
    try:
        assert take(consumer, 2000) == list(range(2000))
        wait_read_from(near)
        monkeypatch.setenv(RACK_VARIABLE, f"rack-{near.node_id}")
        assert brokers_read_by_a_worker_of_spark(site, 2000) == [near.node_id]
        produce(site, 2000, 500)
        assert take(consumer, 500) == list(range(2000, 2500))
        near.process.kill()
        produce(site, 2500, 500)
        assert take(consumer, 500) == list(range(2500, 3000))
        near.restart()
        site.wait_in_sync(TOPIC)

        def reads_here_again() -> bool:
            produce(site, 3000, 1)
            take(consumer, 1)
            return bytes_out(near) > 0

        eventually_sync(reads_here_again)
    finally:
        consumer.close()


def test_java_consumers_read_from_their_rack(site: ReplicatedSite, kafka_programs: KafkaPrograms) -> None:
    site.create(TOPIC, 1)
    near = a_follower(site)
    produce(site, 0, 3000)
    found = kafka_programs.consume(
        site.bootstrap,
        TOPIC,
        3000,
        settings={"client.rack": f"rack-{near.node_id}", "isolation.level": "read_committed"},
    )
    assert [int(value) for value in found] == list(range(3000))
    wait_read_from(near)


def fetch(node: SiteNode, offset: int, *, leader_epoch: int, rack: str = "") -> tuple[str, int, int]:
    """Error, high watermark and preferred replica of one fetch of partition 0."""
    request = {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": TOPIC,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": leader_epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    with RawClient(node.port) as client:
        partition = client.call(1, 12, request).responses[0].partitions[0]
    return partition.error_code.name, partition.high_watermark, partition.preferred_read_replica


def test_followers_and_leaders_answer_as_the_protocol_says(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    produce(site, 0, 10)
    near = a_follower(site)
    leader = site.nodes[site.leaders(TOPIC)[0]]
    rack = f"rack-{near.node_id}"
    eventually_sync(lambda: fetch(near, 0, leader_epoch=-1)[1] == 10)
    assert fetch(leader, 0, leader_epoch=-1, rack=rack)[2] == near.node_id
    assert fetch(leader, 11, leader_epoch=-1, rack=rack) == ("offset_out_of_range", -1, -1)
    assert fetch(leader, 0, leader_epoch=-1, rack=f"rack-{leader.node_id}")[2] == -1
    assert fetch(leader, 0, leader_epoch=-1)[2] == -1
    epoch = 0
    while fetch(near, 0, leader_epoch=epoch)[0] == "fenced_leader_epoch":
        epoch += 1
    assert fetch(near, 0, leader_epoch=epoch)[0] == "none"
    assert fetch(near, 0, leader_epoch=epoch + 1)[0] == "unknown_leader_epoch"
    # a client that knows the epoch asks the leader then; another one must not take it for the end
    # of its records
    assert fetch(near, 99, leader_epoch=epoch)[0] == "offset_out_of_range"
    assert fetch(near, 99, leader_epoch=-1)[0] == "not_leader_or_follower"
