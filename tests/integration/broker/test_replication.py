"""Three brokers, three replicas, acks=all: any process may die or be paused, and no acknowledged
record is lost, doubled or moved.

Unavailability is measured and printed (`-s` shows it), never asserted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kio.schema.errors import ErrorCode

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, ReplicatedSite
from wire.batches.records import Record, decode_records, encode_batch
from wire.client.client_errors import Unreachable
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochQuery
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

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


VICTIMS = [
    a_leader,
    pytest.param(a_follower, marks=pytest.mark.long),
    pytest.param(ReplicatedSite.controller, marks=pytest.mark.long),
]


@pytest.mark.parametrize("victim_of", VICTIMS)
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


@pytest.mark.parametrize("victim_of", VICTIMS)
async def test_a_paused_process_that_goes_on_harms_nothing(
    site: ReplicatedSite, victim_of: Callable[[ReplicatedSite], int]
) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        paused = victim_of(site)
        survivors = tuple(node for node in NODES if node != paused)
        since = time.monotonic()
        site.nodes[paused].process.pause()
        site.wait_in_sync(TOPIC, survivors)
        load.wait_acknowledged(500)
        tell(f"SIGSTOP of {victim_of.__name__}", load, since)
        site.nodes[paused].process.resume()
        load.wait_acknowledged(500)
        await check(site, load)


@pytest.fixture
def calm_site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """No broker counts as dead that was only paused for a moment."""
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, CALM)


@pytest.fixture
def patient_site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """A follower that is paused stays in sync."""
    patience = {"replica.lag.time.max.ms": "60000", "zookeeper.session.timeout.ms": "60000"}
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


async def test_a_short_pause_of_a_leader_is_waited_out(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        for _ in range(3):
            load.wait_acknowledged(300)
            process = site.nodes[a_leader(site)].process
            process.pause()
            load.wait_sent(100)
            process.resume()
        load.wait_acknowledged(300)
        await check(site, load)


def alter_broker(site: ReplicatedSite, node: int, entry: ConfigEntry) -> None:
    """Change a broker's config; tried again when ZooKeeper was not to be had for a moment, as the
    answer asks for.
    """

    def is_altered() -> bool:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
        try:
            site.admin.incremental_alter_configs([resource])[resource].result(120)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.COORDINATOR_NOT_AVAILABLE:
                raise
            return False
        return True

    eventually_sync(is_altered)


async def test_the_number_of_fetchers_changes_under_load(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        for count in ("4", "2", "1"):
            entry = ConfigEntry("num.replica.fetchers", count, incremental_operation=AlterConfigOpType.SET)
            for node in NODES:
                alter_broker(site, node, entry)
            load.wait_acknowledged(300)
        await check(site, load)


async def test_an_orderly_stop_moves_leaders_first(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        leaving = site.nodes[site.leaders(TOPIC)[0]]
        since = time.monotonic()
        leaving.process.stop()
        assert "controlled shutdown moved all leaderships" in leaving.process.log_text()
        load.wait_acknowledged(500)
        tell("orderly stop of a leader", load, since)
        leaving.restart()
        await check(site, load)


async def test_a_leader_that_stops_in_order_names_its_successor_and_keeps_what_it_acknowledged(
    calm_site: ReplicatedSite,
) -> None:
    site = calm_site
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    batch = encode_batch([Record(key=None, value=b"on the move", timestamp_ms=0)])
    request = ProduceRequest(None, -1, 30_000, [TopicRecords(TOPIC, None, [PartitionRecords(0, batch)])])
    offsets: list[int] = []
    named: set[int] = set()
    async with KafkaClient(site.bootstrap) as client:
        await client.produce_to(leader, request)
        stopping = asyncio.create_task(asyncio.to_thread(site.nodes[leader].process.stop))
        with contextlib.suppress(Unreachable):  # in the end it is gone
            while response := await client.produce_to(leader, request):
                (produced,) = response.topics[0].partitions
                if produced.error_code == ErrorCode.none:
                    assert not named
                    offsets.append(produced.base_offset)
                else:
                    assert produced.error_code == ErrorCode.not_leader_or_follower
                    named.add(produced.current_leader.leader_id)
        await stopping
        client.forget_leaders([TOPIC])
        successor = await client.leader(TOPIC, 0)
        ends = await client.epoch_ends(successor, {(TOPIC, 0): EpochQuery(0)})
    assert successor != leader
    assert named <= {successor}
    assert offsets == list(range(1, len(offsets) + 1))
    # a record that a slow follower lacked at the change of leaders is refused, and may be in the
    # successor's log all the same
    is_in_doubt = "replication took too long" in site.nodes[leader].process.log_text()
    assert ends[TOPIC, 0].end_offset - len(offsets) - 1 in ((0, 1) if is_in_doubt else (0,))


async def test_every_broker_may_be_killed_in_turn(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        for node in site.nodes.values():
            since = time.monotonic()
            node.process.kill()
            load.wait_acknowledged(300)
            tell(f"kill -9 of broker {node.node_id}", load, since)
            node.restart()
            site.wait_in_sync(TOPIC)
        await check(site, load)


def produce_one(site: ReplicatedSite, **settings: Any) -> str:
    """Outcome of one record with acks=all: empty, or the error's name."""
    outcome: list[str] = []

    def delivered(error: Any, _: Message) -> None:
        outcome.append("" if error is None else error.name())

    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all", "log_level": 2, **settings})
    producer.produce(TOPIC, b"one", partition=0, on_delivery=delivered)
    assert producer.flush(120) == 0
    return outcome[0]


@pytest.fixture
def site_of_slow_judgement(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """A site whose paused brokers stay registered and in sync for a while. A killed broker is back
    after its session has ended.
    """
    patience = {"replica.lag.time.max.ms": "60000", "zookeeper.session.timeout.ms": "15000"}
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, patience)


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


def test_leaders_go_back_to_preferred_replicas_on_request(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS)
    preferred = site.leaders(TOPIC)
    victim = site.nodes[preferred[0]]
    victim.process.stop()
    eventually_sync(lambda: victim.node_id not in site.leaders(TOPIC).values())
    victim.restart()
    site.wait_in_sync(TOPIC)
    site.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(120)
    eventually_sync(lambda: site.leaders(TOPIC) == preferred)


def committed(site: ReplicatedSite, group: str) -> int:
    """The coordinator's answer; the client drops a broker that has ceased to be the coordinator."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group, "log_level": 2})

    def reported() -> list[TopicPartition] | None:
        try:
            return list(consumer.committed([TopicPartition(TOPIC, 0)], timeout=30))
        except KafkaException:
            return None

    try:
        (found,) = eventually_sync(reported)
        return int(found.offset)
    finally:
        consumer.close()


def commit(site: ReplicatedSite, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group, "log_level": 2})

    def attempt() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    try:
        eventually_sync(attempt)
    finally:
        consumer.close()


def coordinator(site: ReplicatedSite, group: str) -> int:
    """The group's coordinator as the asked broker sees it, which may learn of an election a moment
    later.
    """

    def found() -> int:
        try:
            reported = site.admin.describe_consumer_groups([group], request_timeout=60)[group].result(120)
        except KafkaException:
            return 0
        return int(reported.coordinator.id)

    return eventually_sync(found)


@pytest.mark.long
def test_a_coordinator_that_dies_takes_no_commit_along(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    group = "payers"
    commit(site, group, 1)
    site.wait_in_sync("__consumer_offsets")
    for offset in range(2, 6):
        commit(site, group, offset)
        victim = site.nodes[coordinator(site, group)]
        victim.process.kill()
        assert committed(site, group) == offset
        victim.restart()
        site.wait_in_sync("__consumer_offsets")


def reassign(site: ReplicatedSite, replicas: tuple[int, ...] | None, *, asked: int = NODES[0]) -> Any:
    with RawClient(site.nodes[asked].port) as client:
        partition = {"partition_index": 0, "replicas": replicas}
        response = client.call(45, 0, {"topics": [{"name": TOPIC, "partitions": [partition]}]})
    assert response.responses, response.error_code
    return response.responses[0].partitions[0].error_code.name


def replicas(site: ReplicatedSite) -> list[int]:
    (found,) = site.replicas(TOPIC)
    return found


async def test_a_partition_moves_to_other_brokers_under_load(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    target = tuple(node for node in NODES if node != leader)
    with AcknowledgedLoad(site.bootstrap, TOPIC, 1) as load:
        load.wait_acknowledged(300)
        assert reassign(site, None) == "no_reassignment_in_progress"
        assert reassign(site, (leader, leader)) == "invalid_replica_assignment"
        assert reassign(site, target) == "none"
        eventually_sync(lambda: replicas(site) == list(target))
        eventually_sync(lambda: not site.directory_of(leader, TOPIC, 0).exists())
        load.wait_acknowledged(300)
        assert reassign(site, (leader, *target)) == "none"
        eventually_sync(lambda: replicas(site) == [leader, *target])
        load.finish()
    site.wait_in_sync(TOPIC)
    await load.check_log(site.bootstrap)
    site.wait_equal(TOPIC, 1)


async def test_a_reassignment_to_a_dead_broker_can_be_cancelled(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    before = replicas(site)
    controller = site.controller()
    away = next(node for node in reversed(before) if node != controller)
    kept = [node for node in before if node != away]
    assert reassign(site, tuple(kept)) == "none"
    eventually_sync(lambda: replicas(site) == kept)
    paused = site.nodes[away].process
    paused.pause()
    eventually_sync(lambda: reassign(site, (away, kept[0]), asked=kept[0]) == "none")
    eventually_sync(lambda: set(replicas(site)) == set(before))
    eventually_sync(lambda: reassign(site, None, asked=kept[0]) == "none")
    eventually_sync(lambda: replicas(site) == kept)
    paused.resume()
    assert produce_one(site) == ""
