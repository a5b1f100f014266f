"""Reads a piece of one site's log as raw batches. The calls block: Spark's Python workers make
them, and have no event loop.

The reader asks the leader that the site itself knows, with the replica id of a debugging consumer,
so that it reads to the end of the log on either side of a link. It returns damaged bytes as they
are and raises no error for them, because a reconciliation looks for damage.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from spark_jobs.logs.cluster_client import open_client, replica_id_of, security_of_file
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.core.split_reading import Fetch, SplitReading
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.first_answers import FirstAnswer, FirstAnswers
from spark_jobs.logs.iteration import iterated
from spark_jobs.logs.request_ahead import RequestAhead
from wire.batches.record_batch import BatchHeader, InvalidBatch, verify_crc
from wire.client.client_errors import TRANSIENT, BrokerError
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.security import secured
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP

CLIENT_ID = "antipode-reconcile"
FETCH_BYTES_MAX = 8 * 1024 * 1024
RETRY_BUDGET_MS = 20_000


class StoredBatch(NamedTuple):
    """A batch as it lies in the log. `header` None: bytes that are no batch, at offset
    `expected_offset` or later.
    """

    header: BatchHeader | None
    is_crc_valid: bool
    expected_offset: int
    records: memoryview


def client(bootstrap: str) -> KafkaClient:
    """A client of one site alone. It logs in with the settings of the process, or in a process of
    Spark with the file that `ANTIPODE_COMMAND_CONFIG` names.
    """
    options, security = ConnectionOptions(client_id=CLIENT_ID), security_of_file()
    if security is not None:
        options = secured(options, security)
    return KafkaClient(bootstrap, options, site_local=True, retry_budget_ms=RETRY_BUDGET_MS)


async def _client_of(where: str | ClusterOptions) -> tuple[KafkaClient, int]:
    """A client, and the replica id that it reads with."""
    if isinstance(where, str):
        return client(where), DEBUGGING_CONSUMER
    return await open_client(where), replica_id_of(where)


def read_split(where: str | ClusterOptions, split: Split) -> Iterator[StoredBatch]:
    """The split's batches in order, of the site at a bootstrap address or of the cluster that
    options name. A batch at offsets that the log has had before is left out, as consumers do.
    Raises KafkaClientError when the site does not answer.
    """
    return chain.from_iterable(iterated(_read(where, split)))


def read_splits(
    bootstrap: str, splits: Sequence[Split], *, answer_bytes: int = 0
) -> Iterator[tuple[Split, StoredBatch]]:
    """The batches of several splits of one site, split by split, over one client; also batches at
    offsets that the log has had before. Raises KafkaClientError when the site does not answer. An
    answer to a fetch has `answer_bytes`, or one batch if that is larger; 0 takes the default.
    """
    size_bytes = answer_bytes or FETCH_BYTES_MAX

    async def read() -> AsyncGenerator[list[tuple[Split, StoredBatch]]]:
        async with client(bootstrap) as reader:
            firsts = FirstAnswers(reader, splits, replica_id=DEBUGGING_CONSUMER, answer_bytes=size_bytes)
            async with firsts:
                for number, split in enumerate(splits):
                    first = await firsts.take(number)
                    reading = SplitReading(split, fetch_bytes=size_bytes, keeps_repeated=True)
                    async for batches in _answers(reader, DEBUGGING_CONSUMER, split, first, reading):
                        yield [(split, batch) for batch in batches]

    return chain.from_iterable(iterated(read()))


async def _read(where: str | ClusterOptions, split: Split) -> AsyncGenerator[list[StoredBatch]]:
    opened, replica_id = await _client_of(where)
    async with opened as reader:
        reading = SplitReading(split, fetch_bytes=FETCH_BYTES_MAX, keeps_repeated=False)
        async for batches in _answers(reader, replica_id, split, None, reading):
            yield batches


async def _answers(
    reader: KafkaClient, replica_id: int, split: Split, first: FirstAnswer | None, reading: SplitReading
) -> AsyncGenerator[list[StoredBatch]]:
    """The batches of each answer to a fetch; the first answer may be here already. The next fetch
    is under way while the caller uses an answer.
    """
    async with RequestAhead[tuple[memoryview, int]]() as ahead:
        if (fetch := reading.next_fetch()) is None:
            return
        if first is None:
            await ahead.begin(_fetch(reader, split, fetch, replica_id))
        while fetch is not None:
            if first is None:
                data, log_start_offset = await ahead.result()
            else:
                data, log_start_offset, room_bytes = first
                first, fetch = None, Fetch(fetch.offset, room_bytes)
            if log_start_offset > fetch.offset:
                reading.skip_to(log_start_offset)  # Retention has deleted these offsets since the survey.
                found: list[StoredBatch] = []
            else:
                found = _stored(reading, fetch, data)
            is_damaged = bool(found) and found[-1].header is None
            fetch = None if is_damaged else reading.next_fetch()
            if fetch is not None:
                await ahead.begin(_fetch(reader, split, fetch, replica_id))
            yield found


def _stored(reading: SplitReading, fetch: Fetch, data: memoryview) -> list[StoredBatch]:
    """The batches of an answer. Bytes that are not a batch are the last of them."""
    found: list[StoredBatch] = []
    try:
        for position, header in reading.batches(fetch, data):
            records = data[position : position + header.size_bytes]
            found.append(StoredBatch(header, verify_crc(data, position, header), reading.offset, records))
    except InvalidBatch:
        found.append(StoredBatch(None, is_crc_valid=False, expected_offset=reading.offset, records=memoryview(b"")))
    return found


async def _fetch(reader: KafkaClient, split: Split, fetch: Fetch, replica_id: int) -> tuple[memoryview, int]:
    async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
        with attempt:
            found = await _fetch_once(reader, split, fetch, replica_id)
    return found


async def _fetch_once(reader: KafkaClient, split: Split, fetch: Fetch, replica_id: int) -> tuple[memoryview, int]:
    """The bytes at the offset, and where the log starts now."""
    place = (split.topic, split.partition)
    try:
        fetched = await fetch_at_leader(reader, place, fetch.offset, max_bytes=fetch.max_bytes, replica_id=replica_id)
    except BrokerError as error:
        if error.code is not ErrorCode.offset_out_of_range:
            raise
        start = (await reader.offsets_at([place], EARLIEST_TIMESTAMP, replica_id=replica_id))[place]
        if start > fetch.offset:
            return memoryview(b""), start
        raise
    return records_of(fetched), fetched.log_start_offset
