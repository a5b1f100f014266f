"""Translate links that write in transactions: the view of a read-committed reader of the target,
after any interruption of the mirror.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from clients.reader.single_fetches import fetch_at_leader, records_of
from mirror.translate.notes.core.stored_map import producer_record
from mirror.translate.notes.offset_store import TOPIC_PREFIX
from tests.support.eventually import eventually
from tests.support.examples import examples
from tests.support.pairs.link_faults import BOTH_WAYS
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import create_topic, mirrored_beyond, produce_batches, total_end, wait_equal
from tests.support.pairs.translate_transactions import TRANSACTIONS, MakeLink, demand_whole_transactions_under_kills
from tests.support.processes.apache_kafka import start_apache_kafka
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

KILLS = examples(5)
MANY_KILLS = 40

pytestmark = [pytest.mark.integration, pytest.mark.java]

APACHE_KAFKA, ANTIPODE = pytest.param(False, id="apache kafka"), pytest.param(True, id="antipode")
LONG_APACHE_KAFKA = pytest.param(False, id="apache kafka", marks=pytest.mark.long)
LONG_ANTIPODE = pytest.param(True, id="antipode", marks=pytest.mark.long)


def targets(*chosen: Any) -> pytest.MarkDecorator:
    """The targets; the short run leaves out the long ones."""
    return pytest.mark.parametrize("is_antipode_the_target", chosen)


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_mirror_killed_at_random_moments_leaves_nothing_half(
    transactional_link: MakeLink, is_antipode_the_target: bool, kills: int
) -> None:
    topic = f"together-{is_antipode_the_target}-{kills}"
    link = await transactional_link(topic, is_antipode=is_antipode_the_target)
    await demand_whole_transactions_under_kills(link, kills=kills, chance=random.Random(kills))


@targets(APACHE_KAFKA)
async def test_many_producers_begin_their_partitions_one_after_the_other(
    transactional_link: MakeLink, is_antipode_the_target: bool
) -> None:
    """Apache Kafka asks the coordinator about each new partition of a transaction, and drops the
    question for the next one.
    """
    settings = {"num.producers": "16", "max.partition.fetch.bytes": "2000"}
    link = await transactional_link(
        "many-producers", is_antipode=is_antipode_the_target, partitions=32, settings=settings
    )
    mirror = link.start_mirror()
    for number in range(10):
        await link.produce(number, batches=1)
    await link.wait_equal()
    assert "NETWORK_EXCEPTION" not in mirror.log_text()


async def test_a_transaction_on_a_long_line_takes_in_what_is_on_hand(
    transactional_link: MakeLink, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A commit takes several round trips, so a transaction must contain more than one request."""
    site = await start_lone_site(processes, tmp_path, "far", toxiproxy=toxiproxy, lines=1)
    (line,) = site.lines
    for stream in BOTH_WAYS:
        await asyncio.to_thread(line.add, "latency", stream=stream, latency=50, jitter=0)
    settings = {
        "antipode.target.transactions.commit.interval.ms": "10",
        "max.partition.fetch.bytes": "1024",
        "num.producers": "1",
    }
    link = await transactional_link("long-line", target=line.address, partitions=1, settings=settings)
    await link.produce(0, 100)
    mirror = link.start_mirror()
    await link.wait_equal()
    committed = (await describe_mirror(mirror)).transactions.committed
    assert committed <= 50, "100 batches, as many requests, five of them under way at once"


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_mirror_that_another_one_has_replaced_stays_out_and_says_so(
    transactional_link: MakeLink, is_antipode_the_target: bool
) -> None:
    link = await transactional_link(f"zombie-{is_antipode_the_target}", is_antipode=is_antipode_the_target)
    await link.produce(0)
    zombie = link.start_mirror("zombie")
    await link.wait_equal()
    zombie.pause()
    await link.produce(20)
    link.start_mirror("successor")
    await link.wait_equal()
    zombie.resume()
    await link.produce(40)
    await link.wait_equal()
    await link.wait_faulted(zombie, "another mirror writes")
    await link.produce(60)
    await link.wait_equal()


async def test_of_two_mirrors_at_once_one_goes_on(transactional_link: MakeLink) -> None:
    link = await transactional_link("doubled")
    async with link.loaded():
        mirrors = [link.start_mirror("one")]
        await link.mirrored_something()
        mirrors.append(link.start_mirror("other"))

        async def one_is_out() -> bool:
            states = [{state for state, _ in (await link.states(mirror)).values()} for mirror in mirrors]
            assert {"FAULTED"} in states, states
            return True

        await eventually(one_is_out)
        await link.mirrored_something()
    await link.wait_equal()


async def test_records_of_a_third_site_are_refused_where_nothing_would_keep_them_from_coming_back(
    transactional_link: MakeLink,
) -> None:
    link = await transactional_link("passing", partitions=1, settings={"topic.naming.policy": "identity"})
    notes = f"{TOPIC_PREFIX}far-a"
    await create_topic(link.source, notes, 1, {"cleanup.policy": "compact"})
    async with KafkaClient(link.source) as client:
        brought_by = await client.new_producer_id()
        note = Record(*producer_record("far", brought_by), 1)
        await client.produce(notes, 0, encode_batch([note]))
        passing = encode_batch([Record(None, b"far", 1)], producer_id=brought_by, producer_epoch=0, base_sequence=0)
        await client.produce("passing", 0, passing)
    await link.wait_faulted(link.start_mirror(), "was first written at far")


async def committed_in(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The values of partition 0 by the transaction that made them visible. Every value must be in a
    transaction.
    """
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


def write_slow_transactions(bootstrap: str, topic: str, numbers: range) -> None:
    """Transactions of librdkafka's with a batch for each record."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(120)
    for number in numbers:
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic, f"{number}-{index}-".encode().ljust(600), partition=0)
            assert not producer.flush(120)
        producer.commit_transaction(120)


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_transaction_of_the_source_is_never_torn_apart_at_the_target(
    transactional_link: MakeLink, is_antipode_the_target: bool
) -> None:
    """Each batch is fetched by itself, and the mirror would commit every few of them. Half of the
    transactions are there before the mirror: more batches wait for one commit then than a
    connection may have requests in flight.
    """
    settings = {
        "max.partition.fetch.bytes": "1024",
        "fetch.max.bytes": "1024",
        "antipode.target.transactions.commit.interval.ms": "10",
        # longer than a busy machine needs for 30 transactions: beyond it a commit waits no more
        "antipode.target.transactions.hold.ms": "60000",
        "antipode.target.transactions.timeout.ms": "120000",
    }
    topic = f"whole-{is_antipode_the_target}"
    link = await transactional_link(topic, is_antipode=is_antipode_the_target, partitions=1, settings=settings)
    await asyncio.to_thread(write_slow_transactions, link.source, topic, range(15))
    writing = asyncio.create_task(asyncio.to_thread(write_slow_transactions, link.source, topic, range(15, 30)))
    mirror = link.start_mirror()
    await writing
    await link.wait_equal()
    mirror.stop()
    assert await link.is_nothing_open(), "a mirror that is stopped in order leaves nothing open"
    transactions = [values for values in await committed_in(link.target, link.copy) if values]
    assert len(transactions) > 1, "several commits"
    for values in transactions:
        numbers = [value.split(b"-")[0] for value in values]
        assert all(numbers.count(number) == 5 for number in numbers), numbers


async def test_a_partition_that_the_target_does_not_take_does_not_hold_up_the_others(
    transactional_link: MakeLink,
) -> None:
    settings = {"whitelist": "too-large,fitting", "sync.topic.configs.enabled": "false"}
    link = await transactional_link("too-large", partitions=1, settings=settings)
    await create_topic(link.source, "fitting", 1)
    await create_topic(link.target, link.copy, 1, {"max.message.bytes": "2000"})
    await produce_batches(link.source, link.topic, 0, 0, 3, size=2000)
    await link.wait_faulted(link.start_mirror(), "message_too_large")
    await produce_batches(link.source, "fitting", 0, 0, 20)
    await wait_equal(link.source, link.target, "fitting")
    async with KafkaClient(link.target) as client:
        await client.alter_topic_configs(link.copy, to_set={"max.message.bytes": "100000"})
    await link.wait_equal()


@targets(APACHE_KAFKA, LONG_ANTIPODE)
async def test_a_mirror_that_was_silent_for_longer_than_its_transaction_goes_on(
    transactional_link: MakeLink, is_antipode_the_target: bool
) -> None:
    """The target has aborted the mirror's open transaction and fenced the mirror; no other mirror
    has replaced it.
    """
    settings = {
        "antipode.target.transactions.commit.interval.ms": "1000",
        "antipode.target.transactions.timeout.ms": "2000",
    }
    topic = f"silent-{is_antipode_the_target}"
    link = await transactional_link(topic, is_antipode=is_antipode_the_target, settings=settings)
    mirror = link.start_mirror()
    await link.produce(0, partitions=[0])
    await link.wait_equal()
    before = await total_end(link.target, link.copy, link.partitions)
    await link.produce(20, partitions=[0])
    await mirrored_beyond(before, link.target, link.copy, link.partitions)
    mirror.pause()
    await eventually(link.is_nothing_open)
    mirror.resume()
    await link.produce(0, partitions=[1])
    await link.wait_equal()
    await link.wait_agreement()


@targets(LONG_APACHE_KAFKA, ANTIPODE)
async def test_a_coordinator_that_is_killed_costs_time_and_nothing_else(
    transactional_link: MakeLink, processes: Processes, tmp_path: Path, is_antipode_the_target: bool
) -> None:
    if is_antipode_the_target:
        site = await start_lone_site(processes, tmp_path, "far")
        target, broker = site.bootstrap, site.process
    else:
        kafka = start_apache_kafka(processes, tmp_path / "far")
        target, broker = kafka.bootstrap_servers, kafka.process
    topic = f"uncoordinated-{is_antipode_the_target}"
    link = await transactional_link(topic, target=target, settings={"request.timeout.ms": "2000"})
    link.start_mirror()
    async with link.loaded():
        await link.mirrored_something()
        broker.kill()
        broker.start()

        async def answers() -> int | None:
            try:
                return await total_end(target, link.copy, link.partitions)
            except KafkaClientError:
                return None

        await eventually(answers)
        await link.mirrored_something()
    await link.wait_equal()
    await link.wait_agreement()


async def test_transactions_may_be_switched_on_and_off_on_a_link_that_runs(transactional_link: MakeLink) -> None:
    """Each mirror is killed, so that the next one finds what the one before had not noted."""
    link = await transactional_link("switched")
    async with link.loaded():
        for number, is_on in enumerate(("false", "true", "false")):
            mirror = link.start_mirror(f"mirror-{number}", dict.fromkeys(TRANSACTIONS, is_on))
            await link.mirrored_something()
            mirror.kill()
    mirror.start()
    await link.wait_equal()
