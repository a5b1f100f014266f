"""Reads what another site has written of a batch before a failover; see `core/sink_leftovers.py`.

The state that leaders keep of producers says which partitions the task has written; only these are
read, from the time of the last decision on. For a producer that no decision names, the marker at
the end of its last transaction says whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from spark_jobs.connector.core.sink_leftovers import TRANSACTION_MS_MAX, Leftovers, PartitionLeftovers, Producer
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS
from wire.batches.record_batch import BatchHeader, iterate_headers
from wire.batches.records import Record, decode_batch
from wire.batches.transaction_members import members_of
from wire.client.client_errors import TRANSIENT, BrokerError, Unreachable, UnsupportedApi, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_descriptions import DESCRIBE_PRODUCERS, describe_producers
from wire.protocol.byte_reader import Buffer
from wire.protocol.ids import LATEST_TIMESTAMP, PartitionKey

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
MARKER_BYTES_MAX: Final = 256 * 1024
"""Bytes of a fetch that looks for one marker."""
PARTITIONS_AT_ONCE: Final = 20


async def read_leftovers(client: KafkaClient, topic: str, partitions: int, leftovers: Leftovers) -> None:
    """Add what the topic has. BatchNotWhole, KafkaClientError. A client of brokers before Apache
    Kafka 2.8 finds nothing.
    """
    try:
        for first in range(0, partitions, PARTITIONS_AT_ONCE):
            places = [(topic, partition) for partition in range(first, min(first + PARTITIONS_AT_ONCE, partitions))]
            described = await asyncio.gather(*(_producers(client, place) for place in places))
            for place, producers in zip(places, described, strict=True):
                await _read(client, place, producers, leftovers)
    except UnsupportedApi:
        return
    except BrokerError as error:
        if error.code is not ErrorCode.topic_authorization_failed:
            raise
        leftovers.refuse_unread(topic)


async def _read(client: KafkaClient, place: PartitionKey, producers: list[Producer], leftovers: Leftovers) -> None:
    sought = leftovers.sought
    for one in producers:
        if one.producer_id in leftovers.producers or not sought.is_candidate(one):
            continue
        if await _transactional_id(client, place, one) == sought.transactional_id:
            leftovers.recognise(one.producer_id)
    own = leftovers.producers
    written = [one for one in producers if one.producer_id in own and one.producer_epoch >= own[one.producer_id].first]
    if written:
        since_ms = sought.since_ms or max(0, min(one.last_timestamp_ms for one in written) - TRANSACTION_MS_MAX)
        leftovers.add(place, await _rows(client, place, leftovers, since_ms))


async def _producers(client: KafkaClient, place: PartitionKey) -> list[Producer]:
    """The producers that the partition's leader knows."""
    topic, partition = place

    async def ask() -> list[Producer]:
        connection = await client.connection(await client.leader(topic, partition))
        try:
            found = await describe_producers(connection, topic, partition)
        except TRANSIENT:
            client.forget_leaders([topic])
            raise
        if found.error_code is not ErrorCode.none:
            client.forget_leaders([topic])
            raise broker_error(found.error_code, message=f"{topic}-{partition}", api_key=DESCRIBE_PRODUCERS)
        return [
            Producer(one.producer_id, one.producer_epoch, one.last_timestamp, one.coordinator_epoch)
            for one in found.active_producers
        ]

    result: list[Producer] = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(ask)
    return result


async def _transactional_id(client: KafkaClient, place: PartitionKey, producer: Producer) -> str | None:
    """The transactional id in the marker of the producer's last transaction; None without one."""
    batches = _batches(client, place, producer.last_timestamp_ms, MARKER_BYTES_MAX)
    async for header, data, position in batches:
        if header.producer_id == producer.producer_id and header.is_control:
            members = members_of(_records(data, position, header)[0].headers)
            return None if members is None else members.transactional_id
    return None


async def _rows(client: KafkaClient, place: PartitionKey, leftovers: Leftovers, since_ms: int) -> PartitionLeftovers:
    found = PartitionLeftovers(leftovers.producers)
    async for header, data, position in _batches(client, place, since_ms, FETCH_BYTES_MAX):
        if found.is_wanted(header):
            found.take(header, _records(data, position, header))
    return found


def _records(data: Buffer, position: int, header: BatchHeader) -> list[Record]:
    return list(decode_batch(data, position, header))


async def _batches(
    client: KafkaClient, place: PartitionKey, since_ms: int, fetch_bytes: int
) -> AsyncIterator[tuple[BatchHeader, Buffer, int]]:
    """The batches of a log from a time on: header, data, and the position in it."""
    offset = (await client.offsets_at([place], since_ms))[place]
    end = (await client.offsets_at([place], LATEST_TIMESTAMP))[place]
    while 0 <= offset < end:
        before = offset
        async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
            with attempt:
                fetched = await fetch_at_leader(client, place, offset, max_bytes=fetch_bytes)
        data = records_of(fetched)
        for position, header in iterate_headers(data, may_end_in_partial=True):
            if header.next_offset <= before:
                continue
            offset = header.next_offset
            yield header, data, position
        # rows that are not found would be written a second time
        if offset == before:
            raise Unreachable(f"{place[0]}-{place[1]} has nothing at offset {offset}, below its end {end}")
