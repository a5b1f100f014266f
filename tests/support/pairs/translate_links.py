"""Translate links for tests: a mirror process between two clusters, records with their places, and
the checker that compares them.

The checker reads both ends raw. A translate link promises content, order and count: each target
partition holds the source's records, each once, in the source's order. The records part of a
compressed batch is the same bytes; uncompressed batches may be merged.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, scrape
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes, RunningProcess
from wire.batches.record_batch import HEADER_SIZE, Compression, iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.client.client_errors import TRANSIENT, KafkaClientError
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched

CHECK_BYTES = 8 * 1024 * 1024
EQUAL_WITHIN_MS = 120_000
ANSWERED_WITHIN_MS = 60_000
ROOT = Path(__file__).resolve().parents[3]


class Content(NamedTuple):
    """A record without its place."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class PartitionContent(NamedTuple):
    """A partition as read: its records in order, their offsets, and each batch's records part with
    its codec.
    """

    records: list[Content]
    offsets: list[int]
    batches: list[tuple[int, bytes]]

    @property
    def compressed_batches(self) -> list[tuple[int, bytes]]:
        """The batches that a mirror never merges."""
        return [(codec, body) for codec, body in self.batches if codec]


def start_translate_mirror(
    processes: Processes,
    directory: Path,
    name: str,
    source: str,
    target: str,
    settings: Mapping[str, str] | None = None,
) -> RunningProcess:
    """A mirror process of a translate link a -> b; not yet ready."""
    properties = {
        "link.name": "a-b",
        "link.mode": "translate",
        "source.alias": "a",
        "target.alias": "b",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "replication.factor": "1",
        "antipode.metrics.listener": f"{LOOPBACK}:0",
        "antipode.grpc.listener": f"{LOOPBACK}:0",
        "topics.refresh.interval.ms": "300",
        "group.sync.interval.ms": "300",
        "config.sync.interval.ms": "300",
        "emit.checkpoints.interval.ms": "300",
    } | dict(settings or {})
    command = [
        sys.executable,
        "-m",
        "tests.support.pairs.lone_mirror",
        *(f"{key}={value}" for key, value in properties.items()),
    ]
    home = directory / name
    home.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return processes.run_command(name, command, home, environment)


async def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """A topic at one cluster. Retention is off unless asked for: the tests' records have times long
    gone.
    """
    async with KafkaClient(bootstrap) as client:
        given = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(name=topic, partition_count=partitions, replication_factor=1, configs=given)
        (outcome,) = await client.create_topics([new])
        assert not outcome.error_code, outcome


async def produce_batches(
    bootstrap: str,
    topic: str,
    partition: int,
    first: int,
    batches: int,
    *,
    records: int = 5,
    size: int = 100,
    compression: Compression = Compression.NONE,
) -> None:
    """Numbered batches of numbered records, plain."""
    async with KafkaClient(bootstrap) as client:
        for number in range(first, first + batches):
            content = [
                Record(
                    f"key-{index}".encode(),
                    f"{topic}-{partition}-{number}-{index}-".encode().ljust(size, b"x"),
                    1_700_000_000_000 + number,
                    (("origin", b"test"),),
                )
                for index in range(records)
            ]
            await client.produce(topic, partition, encode_batch(content, compression=compression))


async def read_partition(
    bootstrap: str, topic: str, partition: int, *, is_committed: bool = True, first_offset: int = 0
) -> PartitionContent:
    """All records that a consumer reads, with the batches as they are in the log. With
    `is_committed` it leaves out aborted transactions.
    """
    found = PartitionContent([], [], [])
    async with KafkaClient(bootstrap, retry_budget_ms=ANSWERED_WITHIN_MS) as client:
        place = (topic, partition)
        offset = max(first_offset, (await client.offsets_at([place], EARLIEST_TIMESTAMP))[place])
        level = int(is_committed)
        end = (await client.offsets_at([place], LATEST_TIMESTAMP, isolation_level=level))[place]
        while offset < end:
            retrying = jittered_backoff(retry_on=TRANSIENT, budget_ms=ANSWERED_WITHIN_MS)
            fetched: PartitionFetched = await retrying(
                fetch_at_leader, client, place, offset, max_bytes=CHECK_BYTES, isolation_level=level
            )
            records = records_of(fetched)
            assert records, f"nothing at {offset} of {topic}-{partition}, which ends at {end}"
            aborted = [(one.producer_id, one.first_offset) for one in fetched.aborted_transactions or ()]
            offset = _collect(found, records, aborted)
    return found


async def stable_ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The last stable offset of each partition."""
    async with KafkaClient(bootstrap, retry_budget_ms=2000) as client:
        places = [(topic, index) for index in range(partitions)]
        found = await client.offsets_at(places, LATEST_TIMESTAMP, isolation_level=1)
        return [found[place] for place in places]


async def until_a_random_moment(chance: random.Random, within_s: float = 0.6) -> None:
    """Let some time pass: when a fault strikes is what is varied, or how long it lasts."""
    await asyncio.sleep(chance.uniform(0, within_s))


async def total_end(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the partitions' log ends; 0 while the topic is not there."""
    async with KafkaClient(bootstrap, retry_budget_ms=ANSWERED_WITHIN_MS) as client:
        metadata = await client.metadata([topic])
        if len(metadata.topics[topic].partitions) < partitions:
            return 0
        ends = await client.offsets_at([(topic, index) for index in range(partitions)], LATEST_TIMESTAMP)
        return sum(ends.values())


async def mirrored_something(target: str, topic: str, partitions: int) -> None:
    """Wait until the target has more than it has now."""
    before = await total_end(target, topic, partitions)
    await mirrored_beyond(before, target, topic, partitions)


async def mirrored_beyond(before: int, target: str, topic: str, partitions: int) -> None:
    """Wait until the target has more records than `before`, a count from before there was anything
    to mirror. The new records may be there by now.
    """

    async def has_more() -> bool:
        return await total_end(target, topic, partitions) > before

    await eventually(has_more, EQUAL_WITHIN_MS)


def run_transactions(bootstrap: str, topic: str, attempt: int) -> None:
    """Some transactions of librdkafka's, every third one aborted."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{attempt}", "compression.type": "lz4"}
    )
    producer.init_transactions(120)
    for number in range(9):
        producer.begin_transaction()
        word = "abort" if number % 3 == 2 else "commit"
        for index in range(4):
            producer.produce(topic, f"{word}-{attempt}-{number}-{index}".encode(), partition=0)
        if word == "abort":
            producer.flush(120)
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)


def _collect(found: PartitionContent, records: memoryview, aborted: Sequence[tuple[int, int]]) -> int:
    next_offset = -1
    waiting = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    for position, header in iterate_headers(records, may_end_in_partial=True):
        next_offset = header.next_offset
        for one in list(waiting):
            if one[1] <= header.last_offset:
                aborting.add(one[0])
                waiting.remove(one)
        if header.is_control:
            (marker,) = decode_batch(records, position, header)
            assert marker.key is not None
            if marker.key[3] == 0:
                aborting.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        body = bytes(records[position + HEADER_SIZE : position + header.size_bytes])
        found.batches.append((header.compression, body))
        for record in decode_batch(records, position, header):
            found.records.append(Content(record.key, record.value, record.timestamp_ms, tuple(record.headers)))
            found.offsets.append(record.offset)
    return next_offset


async def wait_equal(
    source: str,
    target: str,
    topic: str,
    partitions: int = 1,
    *,
    target_topic: str | None = None,
    within_ms: float = EQUAL_WITHIN_MS,
    are_batches_equal: bool = True,
) -> None:
    """Wait until the target has as many records as the source, then demand the same ones in the
    same order.
    """
    copy = target_topic or f"a.{topic}"

    async def found() -> list[tuple[PartitionContent, PartitionContent]]:
        pairs = []
        for partition in range(partitions):
            theirs, ours = await read_both(source, topic, target, copy, partition)
            assert len(ours.records) >= len(theirs.records), (partition, len(ours.records), len(theirs.records))
            pairs.append((theirs, ours))
        return pairs

    for partition, (theirs, ours) in enumerate(await eventually(found, within_ms)):
        assert ours.records == theirs.records, (
            f"{copy}-{partition}: {len(ours.records)} records, {len(theirs.records)} at the source"
        )
        if are_batches_equal:
            assert ours.compressed_batches == theirs.compressed_batches, f"{copy}-{partition}: batches differ"
            assert len(ours.batches) <= len(theirs.batches), f"{copy}-{partition}: a batch was divided"


async def read_both(
    source: str, topic: str, target: str, copy: str, partition: int = 0
) -> tuple[PartitionContent, PartitionContent]:
    """A partition of the source, then its copy. Raises AssertionError while one cannot be read: it
    may be deleted and created again meanwhile.
    """
    try:
        theirs = await read_partition(source, topic, partition)
        return theirs, await read_partition(target, copy, partition)
    except KafkaClientError as error:
        raise AssertionError(str(error)) from error


async def shares_of(mirrors: Sequence[RunningProcess], topic: str, sizes: Sequence[int]) -> bool:
    """True if each daemon mirrors its number of the topic's partitions, and no two daemons mirror
    the same one. Raises AssertionError until then.
    """
    owned: list[list[int]] = []
    for mirror in mirrors:
        reply = await describe_mirror(mirror)
        owned.append([one.partition for one in reply.partitions if one.topic == topic and one.state == "MIRRORING"])
    assert [len(partitions) for partitions in owned] == list(sizes), owned
    together = [partition for partitions in owned for partition in partitions]
    assert len(set(together)) == len(together), owned
    return True


async def wait_nothing_lost(
    source: str, target: str, topic: str, partitions: int = 1, *, within_ms: float = EQUAL_WITHIN_MS
) -> dict[int, int]:
    """Wait until the target has each record of the source, in the order of their first copies.
    Returns the number of further copies, by partition.

    All records must differ from each other.
    """

    async def repeated() -> dict[int, int]:
        found = {}
        for partition in range(partitions):
            theirs, ours = await read_both(source, topic, target, f"a.{topic}", partition)
            first = list(dict.fromkeys(ours.records))
            assert first == theirs.records, f"{partition}: {len(first)} of {len(theirs.records)} records"
            found[partition] = len(ours.records) - len(first)
        return found

    return await eventually(repeated, within_ms)


async def demand_surplus_is_counted(mirror: RunningProcess, target: str, topic: str, partitions: int = 1) -> None:
    """The records that only read-uncommitted readers find at the target are at most those that the
    mirror reports.

    Of a mirror that was not started again: the figure is that of its process.
    """
    counted = await surplus_records(mirror, topic)
    for partition in range(partitions):
        copy = f"a.{topic}"
        committed = await read_partition(target, copy, partition)
        everything = await read_partition(target, copy, partition, is_committed=False)
        surplus = len(everything.records) - len(committed.records)
        found = counted[partition]
        assert surplus <= found, f"{copy}-{partition}: {surplus} records are there twice, {found} were counted"


async def surplus_records(mirror: RunningProcess, topic: str) -> dict[int, int]:
    """The surplus records at the target that a mirror reports, beyond one copy of each record, by
    partition of a topic.
    """
    found = {}
    for line in (await asyncio.to_thread(scrape, mirror)).splitlines():
        if line.startswith("antipode_mirror_surplus_records_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["topic"] == topic:
                found[int(labels["partition"])] = int(float(line.rpartition(" ")[2]))
    assert found, f"the mirror says nothing of {topic}"
    return found
