"""Reads a piece of one site's log as raw batches, from code without an event loop: what Spark's Python workers run.

Asks the leader as the site itself knows it, with the replica id of a debugging consumer, so that it reads to the end of the log on
either side of a link. Damage is handed on as such, never raised: it is what a reconciliation looks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from runtime.retries import jittered_backoff
from spark_jobs.core.extents import Split
from wire.broker_requests import EARLIEST_TIMESTAMP
from wire.client import KafkaClient
from wire.client_errors import TRANSIENT, broker_error, error_code
from wire.connection import ConnectionOptions
from wire.fetch_requests import DEBUGGING_CONSUMER, FetchRequest, PartitionToFetch, TopicToFetch
from wire.record_batch import BatchHeader, InvalidBatch, iterate_headers, verify_crc

CLIENT_ID = "antipode-reconcile"
FETCH_BYTES_MAX = 8 * 1024 * 1024
RETRY_BUDGET_MS = 20_000


class StoredBatch(NamedTuple):
    """A batch as it lies in the log. `header` None: bytes that are no batch, at offset `expected_offset` or later."""

    header: BatchHeader | None
    is_crc_valid: bool
    expected_offset: int
    records: memoryview


def client(bootstrap: str) -> KafkaClient:
    """A client of one site alone."""
    return KafkaClient(
        bootstrap, ConnectionOptions(client_id=CLIENT_ID), site_local=True, retry_budget_ms=RETRY_BUDGET_MS
    )


def read_split(bootstrap: str, split: Split) -> Iterator[StoredBatch]:
    """The split's batches in order. Raises KafkaClientError when the site does not answer."""
    with asyncio.Runner() as runner:
        batches = _read(bootstrap, split)
        try:
            while True:
                try:
                    yield runner.run(anext(batches))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            runner.run(batches.aclose())  # type: ignore[attr-defined]


async def _read(bootstrap: str, split: Split) -> AsyncIterator[StoredBatch]:
    offset = split.first_offset
    async with client(bootstrap) as reader:
        while offset < split.until_offset:
            data, log_start_offset = await _fetch(reader, split, offset)
            if log_start_offset > offset:
                offset = log_start_offset  # retention has been here since the survey
                continue
            before = offset
            try:
                for position, header in iterate_headers(data, may_end_in_partial=True):
                    if header.next_offset <= offset or (header.base_offset < split.first_offset and not split.is_first):
                        offset = max(offset, header.next_offset)
                        continue
                    if header.base_offset >= split.until_offset:
                        return
                    yield StoredBatch(
                        header,
                        verify_crc(data, position, header),
                        offset,
                        data[position : position + header.size_bytes],
                    )
                    offset = header.next_offset
            except InvalidBatch:
                yield StoredBatch(None, is_crc_valid=False, expected_offset=offset, records=memoryview(b""))
                return
            if offset == before:
                return


async def _fetch(reader: KafkaClient, split: Split, offset: int) -> tuple[memoryview, int]:
    async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
        with attempt:
            found = await _fetch_once(reader, split, offset)
    return found


async def _fetch_once(reader: KafkaClient, split: Split, offset: int) -> tuple[memoryview, int]:
    """The bytes at the offset, and where the log starts now."""
    leader = await reader.leader(split.topic, split.partition)
    topic_id = reader.cluster.topics[split.topic].topic_id
    wanted = TopicToFetch(split.topic, topic_id, [PartitionToFetch(split.partition, offset, FETCH_BYTES_MAX)])
    request = FetchRequest([wanted], max_wait_ms=0, max_bytes=FETCH_BYTES_MAX, replica_id=DEBUGGING_CONSUMER)
    response = await reader.fetch(leader, request)
    found = response.topics[0].partitions[0]
    if found.error_code == ErrorCode.offset_out_of_range:
        starts = await reader.offsets_at(
            [(split.topic, split.partition)], EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER
        )
        start = starts[split.topic, split.partition]
        if start > offset:
            return memoryview(b""), start
    if found.error_code:
        reader.forget_leaders([split.topic])
        raise broker_error(
            error_code(found.error_code), message=f"{split.topic}-{split.partition} at offset {offset}", api_key=1
        )
    assert isinstance(found.records, memoryview), "a parsed answer's records are a view of its frame"
    return found.records, found.log_start_offset
