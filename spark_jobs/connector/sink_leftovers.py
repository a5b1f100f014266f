"""Reads what another site has written of a batch before a failover; see `core/sink_leftovers.py`.

The state that leaders keep of producers says which partitions the task has written; only these are
read, from the time of the last decision on.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from spark_jobs.connector.core.sink_leftovers import Leftovers, PartitionLeftovers
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS
from wire.batches.record_batch import iterate_headers
from wire.batches.records import decode_batch
from wire.client.client_errors import TRANSIENT, BrokerError, Unreachable, UnsupportedApi, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_descriptions import DESCRIBE_PRODUCERS, describe_producers
from wire.protocol.ids import LATEST_TIMESTAMP, PartitionKey

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024


async def read_leftovers(client: KafkaClient, topic: str, partitions: int, leftovers: Leftovers) -> None:
    """Add what the topic has. BatchNotWhole, KafkaClientError. A client without the right to read
    the topic finds nothing, nor does one of brokers before Apache Kafka 2.8.
    """
    try:
        for place in [(topic, partition) for partition in range(partitions)]:
            if await _has_written(client, place, leftovers):
                leftovers.add(place, await _rows(client, place, leftovers))
    except UnsupportedApi:
        return
    except BrokerError as error:
        if error.code is not ErrorCode.topic_authorization_failed:
            raise


async def _has_written(client: KafkaClient, place: PartitionKey, leftovers: Leftovers) -> bool:
    """True if the partition's leader knows the producer with such an epoch or a later one."""
    former, (topic, partition) = leftovers.former, place

    async def ask() -> bool:
        connection = await client.connection(await client.leader(topic, partition))
        try:
            found = await describe_producers(connection, topic, partition)
        except TRANSIENT:
            client.forget_leaders([topic])
            raise
        if found.error_code is not ErrorCode.none:
            client.forget_leaders([topic])
            raise broker_error(found.error_code, message=f"{topic}-{partition}", api_key=DESCRIBE_PRODUCERS)
        return any(
            one.producer_id == former.producer_id and one.producer_epoch >= former.epoch_min
            for one in found.active_producers
        )

    result: bool = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(ask)
    return result


async def _rows(client: KafkaClient, place: PartitionKey, leftovers: Leftovers) -> PartitionLeftovers:
    found = PartitionLeftovers(leftovers.former)
    offset = (await client.offsets_at([place], leftovers.former.since_ms))[place]
    end = (await client.offsets_at([place], LATEST_TIMESTAMP))[place]
    while 0 <= offset < end:
        before = offset
        async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
            with attempt:
                fetched = await fetch_at_leader(client, place, offset, max_bytes=FETCH_BYTES_MAX)
        data = records_of(fetched)
        for position, header in iterate_headers(data, may_end_in_partial=True):
            if header.next_offset <= before:
                continue
            offset = header.next_offset
            if found.is_wanted(header):
                found.take(header, decode_batch(data, position, header))
        # rows that are not found would be written a second time
        if offset == before:
            raise Unreachable(f"{place[0]}-{place[1]} has nothing at offset {offset}, below its end {end}")
    return found
