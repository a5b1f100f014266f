"""Translate links that write in transactions: what a read-committed reader of the target sees, whatever happens to the mirror."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from mirror.core.stored_map import producer_record
from mirror.offset_store import TOPIC_PREFIX
from tests.support.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.eventually import eventually
from tests.support.examples import examples
from tests.support.mirror_sites import describe_mirror, start_lone_site
from tests.support.processes import Processes, RunningProcess
from tests.support.translate_links import (
    create_topic,
    mirrored_something,
    produce_batches,
    start_translate_mirror,
    total_end,
    wait_equal,
)
from tests.support.translate_transactions import (
    PARTITIONS,
    TRANSACTIONS,
    demand_agreement,
    demand_whole_transactions_under_kills,
    load_until,
    start_transactional_mirror,
    the_target,
)
from wire.broker_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from wire.client import KafkaClient
from wire.client_errors import KafkaClientError
from wire.clients.simple_consumer import fetch_at_leader, records_of
from wire.record_batch import iterate_headers
from wire.records import Record, decode_batch, encode_batch

KILLS = examples(5)
MANY_KILLS = 40

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.timeout(240)]

APACHE_KAFKA, ANTIPODE = pytest.param(False, id="apache kafka"), pytest.param(True, id="antipode")
LONG_APACHE_KAFKA = pytest.param(False, id="apache kafka", marks=pytest.mark.long)
LONG_ANTIPODE = pytest.param(True, id="antipode", marks=pytest.mark.long)


def targets(*chosen: Any) -> pytest.MarkDecorator:
    """Which targets; the long ones are left out of the short run."""
    return pytest.mark.parametrize("is_antipode_the_target", chosen)


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@targets(APACHE_KAFKA, ANTIPODE)
async def test_a_mirror_killed_at_random_moments_leaves_nothing_half(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
    kills: int,
) -> None:
    target = await the_target(is_antipode_the_target, kafka_b, processes, tmp_path)
    topic, chance = f"together-{is_antipode_the_target}-{kills}", random.Random(kills)
    source = apache_kafka.bootstrap_servers
    await demand_whole_transactions_under_kills(processes, tmp_path, source, target, topic, kills=kills, chance=chance)


@targets(APACHE_KAFKA)
async def test_many_producers_begin_their_partitions_one_after_the_other(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path, is_antipode_the_target: bool
) -> None:
    """Apache Kafka asks the coordinator about each new partition of a transaction, and drops the question for the next one."""
    target = await the_target(is_antipode_the_target, kafka_b, processes, tmp_path)
    source, topic, partitions = apache_kafka.bootstrap_servers, "many-producers", 32
    await create_topic(source, topic, partitions)
    mirror = start_transactional_mirror(
        processes,
        tmp_path,
        source,
        target,
        topic,
        settings={"num.producers": "16", "max.partition.fetch.bytes": "2000"},
    )
    for number in range(10):
        for partition in range(partitions):
            await produce_batches(source, topic, partition, number, 1)
    await wait_equal(source, target, topic, partitions)
    assert "NETWORK_EXCEPTION" not in mirror.log_text()


async def state_of(mirror: RunningProcess, topic: str) -> dict[int, tuple[str, str]]:
    reply = await describe_mirror(mirror)
    return {one.partition: (one.state, one.reason) for one in reply.partitions if one.topic == topic}


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_mirror_that_another_one_has_replaced_stays_out_and_says_so(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    source = apache_kafka.bootstrap_servers
    target = await the_target(is_antipode_the_target, kafka_b, processes, tmp_path)
    topic = f"zombie-{is_antipode_the_target}"
    await create_topic(source, topic, PARTITIONS)
    for partition in range(PARTITIONS):
        await produce_batches(source, topic, partition, 0, 20)
    zombie = start_transactional_mirror(processes, tmp_path, source, target, topic, name="zombie")
    await wait_equal(source, target, topic, PARTITIONS)
    zombie.pause()
    for partition in range(PARTITIONS):
        await produce_batches(source, topic, partition, 20, 20)
    start_transactional_mirror(processes, tmp_path, source, target, topic, name="successor")
    await wait_equal(source, target, topic, PARTITIONS)
    zombie.resume()
    for partition in range(PARTITIONS):
        await produce_batches(source, topic, partition, 40, 20)
    await wait_equal(source, target, topic, PARTITIONS)

    async def is_out() -> bool:
        states = await state_of(zombie, topic)
        assert len(states) == PARTITIONS
        assert all(state == "FAULTED" and "another mirror writes" in reason for state, reason in states.values()), (
            states
        )
        return True

    await eventually(is_out, 30_000)
    for partition in range(PARTITIONS):
        await produce_batches(source, topic, partition, 60, 20)
    await wait_equal(source, target, topic, PARTITIONS)


async def test_of_two_mirrors_at_once_one_goes_on(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "doubled", PARTITIONS)
    stop = asyncio.Event()
    loading = asyncio.create_task(load_until(stop, source, "doubled"))
    mirrors = [start_transactional_mirror(processes, tmp_path, source, target, "doubled", name="one")]
    await mirrored_something(target, "a.doubled", PARTITIONS)
    mirrors.append(start_transactional_mirror(processes, tmp_path, source, target, "doubled", name="other"))

    async def one_is_out() -> bool:
        states = [{state for state, _ in (await state_of(mirror, "doubled")).values()} for mirror in mirrors]
        assert {"FAULTED"} in states, states
        return True

    await eventually(one_is_out, 60_000)
    await mirrored_something(target, "a.doubled", PARTITIONS)
    stop.set()
    await loading
    await wait_equal(source, target, "doubled", PARTITIONS, within_ms=60_000)


async def test_records_of_a_third_site_are_refused_where_nothing_would_keep_them_from_coming_back(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    notes = f"{TOPIC_PREFIX}far-a"
    await create_topic(source, notes, 1, {"cleanup.policy": "compact"})
    await create_topic(source, "passing", 1)
    async with KafkaClient(source) as client:
        brought_by = await client.new_producer_id()
        note = Record(*producer_record("far", brought_by), 1)
        await client.produce(notes, 0, encode_batch([note]))
        passing = encode_batch([Record(None, b"far", 1)], producer_id=brought_by, producer_epoch=0, base_sequence=0)
        await client.produce("passing", 0, passing)
    settings = {"topic.naming.policy": "identity"}
    mirror = start_transactional_mirror(processes, tmp_path, source, target, "passing", settings=settings)

    async def is_refused() -> bool:
        states = await state_of(mirror, "passing")
        assert [state for state, _ in states.values()] == ["FAULTED"], states
        assert "came into being at far" in states[0][1]
        return True

    await eventually(is_refused, 30_000)


async def committed_in(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The values of partition 0 by the transaction that made them visible; nothing of it is outside one."""
    transactions: list[list[bytes]] = []
    filling: list[bytes] = []
    async with KafkaClient(bootstrap) as client:
        place = (topic, 0)
        offset = (await client.offsets_at([place], EARLIEST_TIMESTAMP))[place]
        end = (await client.offsets_at([place], LATEST_TIMESTAMP))[place]
        while offset < end:
            records = records_of(await fetch_at_leader(client, place, offset, max_bytes=1_000_000))
            for position, header in iterate_headers(records, may_end_in_partial=True):
                if header.is_control:
                    transactions.append(filling)
                    filling = []
                elif header.base_offset >= offset:
                    assert header.is_transactional
                    filling += [record.value or b"" for record in decode_batch(records, position, header)]
                offset = max(offset, header.next_offset)
    assert not filling
    return transactions


def write_slow_transactions(bootstrap: str, topic: str, count: int) -> None:
    """Transactions of librdkafka's with a batch for each record."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic, f"{number}-{index}-".encode().ljust(600), partition=0)
            assert not producer.flush(10)
        producer.commit_transaction(30)


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_transaction_of_the_source_is_never_torn_apart_at_the_target(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    """Each batch is fetched by itself, and the mirror would commit every few of them."""
    source = apache_kafka.bootstrap_servers
    target = await the_target(is_antipode_the_target, kafka_b, processes, tmp_path)
    topic = f"whole-{is_antipode_the_target}"
    await create_topic(source, topic, 1)
    settings = {
        "max.partition.fetch.bytes": "1024",
        "fetch.max.bytes": "1024",
        "antipode.target.transactions.commit.interval.ms": "10",
        "antipode.target.transactions.hold.ms": "20000",
    }
    writing = asyncio.create_task(asyncio.to_thread(write_slow_transactions, source, topic, 30))
    mirror = start_transactional_mirror(processes, tmp_path, source, target, topic, settings=settings)
    await writing
    await wait_equal(source, target, topic)
    mirror.stop()
    assert await is_nothing_open(target, f"a.{topic}"), "a mirror that is stopped in order leaves nothing open"
    transactions = [values for values in await committed_in(target, f"a.{topic}") if values]
    assert len(transactions) > 1, "several commits"
    for values in transactions:
        numbers = [value.split(b"-")[0] for value in values]
        assert all(numbers.count(number) == 5 for number in numbers), numbers


async def test_a_partition_that_the_target_does_not_take_does_not_hold_up_the_others(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    for topic in ("too-large", "fitting"):
        await create_topic(source, topic, 1)
    await create_topic(target, "a.too-large", 1, {"max.message.bytes": "2000"})
    await produce_batches(source, "too-large", 0, 0, 3, size=2000)
    settings = {"whitelist": "too-large,fitting", "sync.topic.configs.enabled": "false"}
    mirror = start_transactional_mirror(processes, tmp_path, source, target, "too-large", settings=settings)

    async def is_faulted() -> bool:
        states = await state_of(mirror, "too-large")
        assert [state for state, _ in states.values()] == ["FAULTED"], states
        assert "message_too_large" in states[0][1]
        return True

    await eventually(is_faulted, 30_000)
    await produce_batches(source, "fitting", 0, 0, 20)
    await wait_equal(source, target, "fitting")
    async with KafkaClient(target) as client:
        await client.alter_topic_configs("a.too-large", to_set={"max.message.bytes": "100000"})
    await wait_equal(source, target, "too-large")


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_mirror_that_was_silent_for_longer_than_its_transaction_goes_on(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    """The target has aborted what it had open, and fenced it; nobody has taken its place."""
    source = apache_kafka.bootstrap_servers
    target = await the_target(is_antipode_the_target, kafka_b, processes, tmp_path)
    topic = f"silent-{is_antipode_the_target}"
    await create_topic(source, topic, PARTITIONS)
    settings = {
        "antipode.target.transactions.commit.interval.ms": "1000",
        "antipode.target.transactions.timeout.ms": "2000",
    }
    mirror = start_transactional_mirror(processes, tmp_path, source, target, topic, settings=settings)
    await produce_batches(source, topic, 0, 0, 20)
    await wait_equal(source, target, topic, PARTITIONS)
    await produce_batches(source, topic, 0, 20, 20)
    await mirrored_something(target, f"a.{topic}", PARTITIONS)
    mirror.pause()
    await eventually(lambda: is_nothing_open(target, f"a.{topic}"), 60_000)
    mirror.resume()
    await produce_batches(source, topic, 1, 0, 20)
    await wait_equal(source, target, topic, PARTITIONS)
    await eventually(lambda: records_and_notes_agree(source, target, topic), 20_000)


async def is_nothing_open(target: str, topic: str) -> bool:
    """Whether read-committed readers get as far as all others."""
    async with KafkaClient(target) as client:
        place = (topic, 0)
        stable = (await client.offsets_at([place], LATEST_TIMESTAMP, isolation_level=1))[place]
        return stable == (await client.offsets_at([place], LATEST_TIMESTAMP))[place]


async def records_and_notes_agree(source: str, target: str, topic: str) -> bool:
    await demand_agreement(source, target, topic)
    return True


@targets(LONG_APACHE_KAFKA, ANTIPODE)
async def test_a_coordinator_that_is_killed_costs_time_and_nothing_else(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, is_antipode_the_target: bool
) -> None:
    source = apache_kafka.bootstrap_servers
    if is_antipode_the_target:
        site = await start_lone_site(processes, tmp_path, "site")
        target, broker = site.bootstrap, site.process
    else:
        kafka = start_apache_kafka(processes, tmp_path / "far")
        target, broker = kafka.bootstrap_servers, kafka.process
    topic = f"uncoordinated-{is_antipode_the_target}"
    await create_topic(source, topic, PARTITIONS)
    settings = {"request.timeout.ms": "2000"}
    start_transactional_mirror(processes, tmp_path, source, target, topic, settings=settings)
    stop = asyncio.Event()
    loading = asyncio.create_task(load_until(stop, source, topic))
    await mirrored_something(target, f"a.{topic}", PARTITIONS)
    broker.kill()
    broker.start()

    async def answers() -> int | None:
        try:
            return await total_end(target, f"a.{topic}", PARTITIONS)
        except KafkaClientError:
            return None

    await eventually(answers, 60_000)
    await mirrored_something(target, f"a.{topic}", PARTITIONS)
    stop.set()
    await loading
    await wait_equal(source, target, topic, PARTITIONS, within_ms=60_000)
    await eventually(lambda: records_and_notes_agree(source, target, topic), 20_000)


async def test_transactions_may_be_switched_on_and_off_on_a_link_that_runs(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Each mirror is killed, so that the next one finds what the one before had not noted."""
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "switched", PARTITIONS)
    stop = asyncio.Event()
    loading = asyncio.create_task(load_until(stop, source, "switched"))
    for number, settings in enumerate(({}, TRANSACTIONS, {})):
        given = {"link.name": "switched", "whitelist": "switched", **settings}
        mirror = start_translate_mirror(processes, tmp_path, f"mirror-{number}", source, target, given)
        await mirrored_something(target, "a.switched", PARTITIONS)
        mirror.kill()
    stop.set()
    await loading
    mirror.start()
    await wait_equal(source, target, "switched", PARTITIONS, within_ms=60_000)
