"""A mirror between two real brokers: the target has the source's batches byte for byte, and its log
starts where the source's does.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.clients.kafka_clients import delete_records
from tests.support.clients.transactional_clients import WITHIN_S, transactional_producer
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import scrape, verify_mirror, wait_for_state
from tests.support.pairs.mirror_sites import Pair, start_pair
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

LARGEST_VALUE_BYTES = 1_048_000
"""As much as the default `max.message.bytes` lets through."""


def commit_one(bootstrap: str) -> None:
    """One record and its marker to partition 0."""
    producer = transactional_producer(bootstrap, "one")
    producer.begin_transaction()
    producer.produce("orders", b"one", partition=0)
    producer.commit_transaction(WITHIN_S)


async def test_the_target_becomes_a_byte_exact_copy(processes: Processes, tmp_path: Path) -> None:
    """M1, M8: codecs, empty partitions, transactions, null values, the largest record, no time; and
    the page of metrics.
    """
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 4)
    async with KafkaClient(pair.source.bootstrap) as client:
        for codec in range(5):
            for partition in range(3):
                values = [(b"key", None), (None, b"value" * 50), (b"", b"")]
                await client.produce("orders", partition, batch(values, codec=codec, timestamp_ms=1_700_000_000_000))
        await client.produce("orders", 2, batch([b"x" * LARGEST_VALUE_BYTES], timestamp_ms=-1))
    await asyncio.to_thread(commit_one, pair.source.bootstrap)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 4)
    await wait_for_state(mirror, "MIRRORING")
    place = 'partition="0",source="a",target="b",topic="orders"'
    (_, log_end_offset), *_ = await pair.ends(pair.source, "orders", 4)

    def is_on_the_page() -> bool:
        """The page counts the records that the target acknowledged, markers too."""
        page = scrape(mirror)
        for name in ("antipode_mirror_lag_records", "antipode_mirror_lag_seconds", "antipode_mirror_queue_bytes"):
            assert name in page
        counted = f"kafka_connect_mirror_mirrorsourceconnector_record_count{{{place}}} "
        assert [line.removeprefix(counted) for line in page.splitlines() if line.startswith(counted)] == [
            f"{log_end_offset}.0"
        ]
        assert f"kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_avg{{{place}}}" in page
        return True

    await eventually(is_on_the_page)
    await pair.caught_up("orders", 4)


async def test_compressed_connections_carry_the_same_bytes(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    compressed = {
        "antipode.source.compression.type": "zstd",
        "antipode.target.compression.type": "zstd",
        "antipode.target.compression.level": "1",
    }
    mirror = pair.start_mirror(compressed)
    for partition in range(2):
        await pair.produce("orders", partition, 30, records=100, size=200)
    await pair.caught_up("orders", 2)
    page = scrape(mirror)
    for end in ("source", "target"):
        plain, wire = (_counted(page, f"antipode_mirror_compression_{name}_bytes", end) for name in ("plain", "wire"))
        assert plain > 1_000_000
        assert wire < plain / 5
        assert _counted(page, "antipode_mirror_compression_refusals", end) == 0


def _counted(page: str, name: str, end: str) -> float:
    start = f'{name}_total{{end="{end}",link="a-b"}} '
    return next(float(line.removeprefix(start)) for line in page.splitlines() if line.startswith(start))


async def test_the_first_record_is_there_soon_after_the_start(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 1)
    pair.start_mirror()
    await pair.caught_up("orders")


async def test_a_source_whose_log_starts_inside_a_batch_is_copied_with_that_start(
    processes: Processes, tmp_path: Path
) -> None:
    """M7: a request that deletes records may name any offset."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 4)
    await asyncio.to_thread(delete_records, pair.source.bootstrap, "orders", 15)
    pair.start_mirror()
    await pair.caught_up("orders")
    await pair.produce("orders", 0, 1)
    await pair.caught_up("orders")
    await eventually(lambda: starts_at(pair, 15))


async def starts_at(pair: Pair, offset: int) -> bool:
    """True if both logs start at the offset. Raises AssertionError until then."""
    ends = [await pair.ends(site, "orders", 1) for site in (pair.source, pair.target)]
    assert [start for ((start, _),) in ends] == [offset] * 2, ends
    return True


async def test_a_small_queue_that_never_waits_loses_nothing(processes: Processes, tmp_path: Path) -> None:
    """MM-06 with queue.enqueueTimeout.ms=0, spelled as long ago."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 60, records=50, size=1000)
    mirror = pair.start_mirror({"queue.byte.size": "1048576", "queue.enqueueTimeout.ms": "0"})
    await pair.caught_up("orders", 2)
    assert "queue.enqueue.timeout.ms is not -1" in mirror.log_text()


async def test_idle_partitions_tell_the_target_how_the_source_is(processes: Processes, tmp_path: Path) -> None:
    """The target knows the source's high watermark and its time without traffic. A failover counts
    the lost records from it.
    """
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 2)
    pair.start_mirror()
    await pair.caught_up("orders")
    began_ms = time.time() * 1000

    async def is_told() -> bool:
        (partition,) = await pair.describe_partitions(pair.target)
        return partition.source_high_watermark == 20 and partition.source_seen_at_ms > began_ms

    await eventually(is_told)


async def test_an_exact_link_is_verified_while_it_mirrors(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    await pair.produce("orders", 1, 30)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 2)
    await wait_for_state(mirror, "MIRRORING")
    found = await verify_mirror(mirror)
    assert [(one.partition, one.verdict, one.records) for one in found] == [(0, "equal", 0), (1, "equal", 300)]
