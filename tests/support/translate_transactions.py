"""Translate links that write in transactions, for tests: a mirror, what a read-committed reader finds, and a scenario of kills."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

from mirror.core.partitions import PartitionKey
from mirror.core.stored_map import StoredLink
from mirror.offset_store import TOPIC_PREFIX, read_topic
from mirror.transactions import TRANSACTIONAL_ID_PREFIX
from runtime.retries import jittered_backoff
from tests.support.apache_kafka import ApacheKafka
from tests.support.mirror_sites import start_lone_site, verify_mirror
from tests.support.processes import Processes, RunningProcess
from tests.support.translate_links import (
    create_topic,
    mirrored_something,
    produce_batches,
    read_partition,
    start_translate_mirror,
    until_a_random_moment,
    wait_equal,
)
from wire.client import KafkaClient
from wire.client_errors import TRANSIENT
from wire.transaction_requests import request_identity

PARTITIONS = 3
PAUSE_OF_LOAD_S = 0.1
"""Between rounds: what has been written is compared again after each kill."""

TRANSACTIONS = {"antipode.target.transactions": "true"}


def start_transactional_mirror(
    processes: Processes,
    tmp_path: Path,
    source: str,
    target: str,
    topic: str,
    *,
    name: str = "mirror",
    settings: Mapping[str, str] | None = None,
) -> RunningProcess:
    """A mirror of one topic that writes in transactions."""
    given = {
        "link.name": topic,
        "whitelist": topic,
        "max.partition.fetch.bytes": "20000",
        **TRANSACTIONS,
    } | dict(settings or {})
    return start_translate_mirror(processes, tmp_path, name, source, target, given)


async def the_target(is_antipode: bool, kafka: ApacheKafka, processes: Processes, tmp_path: Path) -> str:
    """Bootstrap address of the broker that takes the copies."""
    if not is_antipode:
        return kafka.bootstrap_servers
    return (await start_lone_site(processes, tmp_path, "site")).bootstrap


async def end_what_is_open(target: str, link: str) -> None:
    """What a successor does first: whoever wrote in the link's name is fenced, and its transaction aborted."""
    async with KafkaClient(target) as client:

        async def once() -> None:
            name = TRANSACTIONAL_ID_PREFIX + link
            connection = await client.connection(await client.transaction_coordinator(name))
            await request_identity(connection, name, timeout_ms=60_000)

        await jittered_backoff(retry_on=TRANSIENT, initial_ms=10, max_ms=200, budget_ms=60_000)(once)


async def noted(target: str, link: str) -> StoredLink:
    """What a read-committed reader finds in the link's topic."""
    stored = StoredLink()
    async with KafkaClient(target) as client:
        await read_topic(client, TOPIC_PREFIX + link, stored.apply)
    return stored


async def demand_agreement(source: str, target: str, topic: str) -> None:
    """With nothing open: what is seen of each partition is what the notes speak of, record by record and offset by offset."""
    stored = await noted(target, topic)
    for partition in range(PARTITIONS):
        key = PartitionKey(topic, partition)
        ours = await read_partition(target, f"a.{topic}", partition)
        theirs = await read_partition(source, topic, partition)
        translation = stored.translation(key)
        expected = [at for at in theirs.offsets if at < translation.position.source_next]
        assert ours.records == theirs.records[: len(expected)], (
            f"{key}: seen {len(ours.records)}, noted {len(expected)}"
        )
        end = translation.position.target_next
        assert [translation.map.downstream(at, end=end) for at in expected] == ours.offsets, f"{key}: the map differs"


async def demand_whole_transactions_under_kills(
    processes: Processes, tmp_path: Path, source: str, target: str, topic: str, *, kills: int, chance: random.Random
) -> None:
    """After each kill, with the open transaction ended, records and notes agree; at the end everything is there, once and in order."""
    await create_topic(source, topic, PARTITIONS)
    mirror = start_transactional_mirror(processes, tmp_path, source, target, topic)
    stop = asyncio.Event()
    loading = asyncio.create_task(load_until(stop, source, topic))
    for _ in range(kills):
        await mirrored_something(target, f"a.{topic}", PARTITIONS)
        await until_a_random_moment(chance)
        mirror.kill()
        await end_what_is_open(target, topic)
        await demand_agreement(source, target, topic)
        mirror.start()
    stop.set()
    assert await loading > 0
    await wait_equal(source, target, topic, PARTITIONS, within_ms=60_000)
    found = await verify_mirror(mirror, topic)
    assert [one.verdict for one in found] == ["equal"] * PARTITIONS, found


async def load_until(stop: asyncio.Event, source: str, topic: str) -> int:
    """Batches to all partitions, again and again; how many rounds there were."""
    rounds = 0
    while not stop.is_set():
        for partition in range(PARTITIONS):
            await produce_batches(source, topic, partition, rounds * 10, 10, size=100)
        rounds += 1
        await asyncio.sleep(PAUSE_OF_LOAD_S)
    return rounds
