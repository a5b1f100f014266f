"""Acknowledgements and in-sync replicas: the leader waits for its followers, refuses acks=all when
too few are in sync, and keeps aside the records that it truncates.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from tests.support.sites.replicated_topic import TOPIC, a_follower, produce_one
from wire.batches.records import Record, decode_records, encode_batch

pytestmark = pytest.mark.integration


@pytest.fixture
def site_of_slow_judgement(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """A site whose paused brokers stay registered and in sync for a while. A killed broker is back
    after its session has ended.
    """
    patience = {"replica.lag.time.max.ms": "60000", "zookeeper.session.timeout.ms": "15000"}
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, patience)


def test_requests_that_follow_on_a_connection_do_not_wait_for_the_replicas_of_the_one_before(
    patient_site: ReplicatedSite,
) -> None:
    site = patient_site
    site.create(TOPIC, 1, min_insync_replicas="2")
    leader = site.leaders(TOPIC)[0]
    (log,) = site.directory_of(leader, TOPIC, 0).glob("*.log")
    batches = [encode_batch([Record(key=None, value=b"x" * size)]) for size in (10, 200_000, 30)]
    with RawClient(site.nodes[leader].port) as client:
        paused = site.nodes[a_follower(site)].process
        paused.pause()
        for batch in batches:
            client.send_produce(TOPIC, batch, timeout_ms=60_000)
        eventually_sync(lambda: log.stat().st_size == sum(map(len, batches)))
        paused.resume()
        placed = [client.produced().topics[0].partitions[0] for _ in batches]
    assert [(answer.error_code, answer.base_offset) for answer in placed] == [(ErrorCode.none, at) for at in range(3)]
    site.wait_equal(TOPIC, 1)


def test_records_that_a_follower_does_not_take_in_time_are_answered_so_and_kept(patient_site: ReplicatedSite) -> None:
    site = patient_site
    site.create(TOPIC, 1, min_insync_replicas="2")
    leader = site.nodes[site.leaders(TOPIC)[0]]
    paused = site.nodes[a_follower(site)].process
    records = encode_batch([Record(value=b"kept", key=None)])
    with RawClient(leader.port) as client:
        paused.pause()
        assert client.produce(TOPIC, records, timeout_ms=200).error_code == ErrorCode.request_timed_out
        paused.resume()
        placed = client.produce(TOPIC, records, timeout_ms=60_000)
        assert (placed.error_code, placed.base_offset) == (ErrorCode.none, 1)
    site.wait_equal(TOPIC, 1)


def test_records_that_a_leader_took_alone_are_counted_and_kept_when_it_truncates_them(
    site_of_slow_judgement: ReplicatedSite,
) -> None:
    site = site_of_slow_judgement
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    others = [site.nodes[node] for node in NODES if node != leader]
    for node in others:
        node.process.pause()
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": 1, "log_level": 2})
    taken = [f"{number}" for number in range(20)]
    for value in taken:
        producer.produce(TOPIC, value, partition=0)
        assert producer.flush(120) == 0
    site.nodes[leader].process.kill()
    for node in others:
        node.process.resume()
    eventually_sync(lambda: site.leaders(TOPIC)[0] not in (-1, leader))
    site.nodes[leader].restart()
    site.wait_in_sync(TOPIC)
    site.wait_equal(TOPIC, 1)
    log = site.directory_of(leader, TOPIC, 0)
    cut = values_in(log.with_name(f"0.cut.{TOPIC}-0.log"))
    assert [*values_in(log / f"{0:020d}.log"), *cut] == taken
    assert cut
    assert site.nodes[leader].figure("antipode_broker_truncated_records_total") == len(cut)


def values_in(file: Path) -> list[str]:
    return [record.value.decode() for record in decode_records(file.read_bytes()) if record.value is not None]


def visible_end(site: ReplicatedSite) -> int:
    """The end of partition 0 for consumers."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "watchers", "log_level": 2})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)[1]
        return end
    finally:
        consumer.close()


def test_too_few_replicas_in_sync_refuse_acks_all_and_show_nothing_new(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, 1, min_insync_replicas="2")
    leader = site.leaders(TOPIC)[0]
    assert produce_one(site) == ""
    for node in NODES:
        if node != leader:
            site.nodes[node].process.kill()
    site.wait_in_sync(TOPIC, (leader,))
    assert produce_one(site, retries=0) == "NOT_ENOUGH_REPLICAS"
    eventually_sync(lambda: site.nodes[leader].figure("kafka_server_replicamanager_underminisrpartitioncount") == 1)
    assert produce_one(site, acks=1) == ""
    assert visible_end(site) == 1
    for node in NODES:
        if node != leader:
            site.nodes[node].restart()
    site.wait_in_sync(TOPIC)
    eventually_sync(lambda: visible_end(site) == 2)
    assert produce_one(site) == ""
    site.wait_equal(TOPIC, 1)


def test_the_last_in_sync_replica_is_waited_for(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    others = [node for node in NODES if node != leader]
    for node in others:
        site.nodes[node].process.kill()
    site.wait_in_sync(TOPIC, (leader,))
    assert produce_one(site, acks=1) == ""
    site.nodes[leader].process.kill()
    for node in others:
        site.nodes[node].restart()
    eventually_sync(lambda: site.leaders(TOPIC)[0] == -1)
    site.nodes[leader].restart()
    site.wait_in_sync(TOPIC)
    assert site.leaders(TOPIC)[0] == leader
    site.wait_equal(TOPIC, 1)
