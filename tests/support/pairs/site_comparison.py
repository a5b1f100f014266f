"""Compares the logs of two sites byte by byte, as they lie on disk: M1 of the mirror's invariants.

Reads raw batches with replica id -2 and the sites' own metadata, so roles do not matter, and
through the CLIENT listeners, so that a fault of the link does not reach the comparison. Base
offsets, leader epochs, producer ids and checksums are in the bytes; a batch is never decoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from tests.support.eventually import eventually
from wire.batches.record_batch import BatchHeader, iterate_headers
from wire.client.client_errors import TRANSIENT, KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched

FETCH_BYTES = 4 * 1024 * 1024
RETRY_BUDGET_MS = 60_000

Key = tuple[str, int]
Ends = dict[Key, int]


def site_client(bootstrap_servers: str) -> KafkaClient:
    """A client that sees one site alone."""
    return KafkaClient(bootstrap_servers, site_local=True, retry_budget_ms=RETRY_BUDGET_MS)


async def partitions(client: KafkaClient) -> list[Key]:
    """Every partition of the site's own topics, internal ones left out."""
    topics = (await client.metadata()).topics
    return sorted(
        (name, index)
        for name, topic in topics.items()
        if not name.startswith("__")
        for index in range(len(topic.partitions))
    )


async def log_ends(client: KafkaClient) -> Ends:
    """Log end of each partition, as far as readers see it."""
    return dict(
        await client.offsets_at(await partitions(client), LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER),
    )


async def batches(client: KafkaClient, key: Key, first: int, end: int) -> AsyncIterator[tuple[BatchHeader, bytes]]:
    """The batches of a partition from `first` up to `end`, as they lie in its log."""
    topic, partition = key
    offset = first
    while offset < end:
        retrying = jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)
        fetched: PartitionFetched = await retrying(
            fetch_at_leader, client, key, offset, max_bytes=FETCH_BYTES, replica_id=DEBUGGING_CONSUMER
        )
        records = records_of(fetched)
        before = offset
        for position, header in iterate_headers(records):
            if header.base_offset >= end:
                break
            yield header, bytes(records[position : position + header.size_bytes])
            offset = header.next_offset
        assert offset > before, f"no progress at {offset} of {topic}-{partition}"


async def check_prefix(source: str, target: str) -> dict[Key, tuple[int, int]]:
    """M1: the source has every batch of the target, byte for byte. Returns (source end, target end)
    of each partition of the target.
    """
    async with site_client(source) as theirs, site_client(target) as ours:
        ends = await log_ends(ours)
        source_ends = await log_ends(theirs)
        firsts = await ours.offsets_at(list(ends), EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
        for key, end in ends.items():
            assert end <= source_ends[key], f"{key}: the target ends at {end}, the source at {source_ends[key]}"
            await _check_same(key, batches(theirs, key, firsts[key], end), batches(ours, key, firsts[key], end))
        return {key: (source_ends[key], end) for key, end in ends.items()}


async def _check_same(
    key: Key, theirs: AsyncIterator[tuple[BatchHeader, bytes]], ours: AsyncIterator[tuple[BatchHeader, bytes]]
) -> None:
    async for header, data in ours:
        their_header, their_data = await anext(theirs)
        assert data == their_data, f"{key} differs: {header} at the target, {their_header} at the source"


async def common_ends(source: str, target: str) -> Ends:
    """The offset of each partition of the target up to which both sites hold the same batches, byte
    by byte.
    """
    found: Ends = {}
    async with site_client(source) as theirs, site_client(target) as ours:
        ends, source_ends = await log_ends(ours), await log_ends(theirs)
        for key, end in ends.items():
            found[key] = 0
            there = batches(theirs, key, 0, source_ends[key])
            async for header, data in batches(ours, key, 0, end):
                other = await anext(there, None)
                if other is None or other[1] != data:
                    break
                found[key] = header.next_offset
    return found


async def caught_up(source: str, target: str, *, without: tuple[str, ...] = (), within_ms: float = 60_000) -> Ends:
    """Wait until the target has all records of the source (without these topics), then compare all
    of them. Returns the ends.
    """
    async with site_client(source) as theirs, site_client(target) as ours:

        async def is_equal() -> bool:
            try:
                wanted = {key: end for key, end in (await log_ends(theirs)).items() if key[0] not in without}
                there = await log_ends(ours)
            except KafkaClientError as error:  # an election may take longer than a client tries
                raise AssertionError(str(error)) from error
            assert there == wanted, {key: (end, there.get(key)) for key, end in wanted.items()}
            return True

        await eventually(is_equal, within_ms)
    compared = await check_prefix(source, target)
    return {key: end for key, (_, end) in compared.items()}
