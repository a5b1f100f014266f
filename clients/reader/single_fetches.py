"""One fetch of one partition, for callers with their own loop: the mirror's verifier, repairs,
scans for markers, Spark's readers.

A failure makes the client look up the leader again before the next fetch.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kio.schema.errors import ErrorCode

from wire.client.client_errors import TRANSIENT, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import CONSUMER, NO_EPOCH, PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched

NOTHING: Final = memoryview(b"")
"""The records of an answer that has none."""


async def fetch_at_leader(
    client: KafkaClient,
    place: PartitionKey,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    isolation_level: int = 0,
    replica_id: int = CONSUMER,
    leader_epoch: int = NO_EPOCH,
) -> PartitionFetched:
    """One fetch of one partition at its leader, one attempt. Raises BrokerError for any error,
    after which the leader is looked up again.

    A broker whose quota the client exceeds answers with no partition at all and the time to wait
    (KIP-124): that is not an error, and the same fetch is repeated after that time.
    """
    topic, partition = place
    limits = FetchRequest(
        [],
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        replica_id=replica_id,
    )
    wanted = PartitionToFetch(partition, offset, max_bytes, leader_epoch)
    return await fetch_at_node(client, await client.leader(topic, partition), topic, wanted, limits)


async def fetch_at_node(
    client: KafkaClient, node: int, topic: str, wanted: PartitionToFetch, limits: FetchRequest
) -> PartitionFetched:
    """Like `fetch_at_leader`, at a broker that the caller chooses; `limits` is a request without
    topics.
    """
    known = client.cluster.topics.get(topic)
    request = limits._replace(topics=[TopicToFetch(topic, None if known is None else known.topic_id, [wanted])])
    try:
        response = await client.fetch(node, request)
        # the quota refused the fetch, not the broker: no other one and no retry budget is needed
        while is_throttled_away(response):
            await asyncio.sleep(response.throttle_time_ms / 1000)
            response = await client.fetch(node, request)
    except TRANSIENT:
        client.forget_leaders([topic])
        raise
    fetched = response.topics[0].partitions[0] if response.topics else None
    code = error_code(response.error_code or (fetched.error_code if fetched is not None else 0))
    if code or fetched is None:
        client.forget_leaders([topic])
        message = f"{topic}-{wanted.partition_index} at offset {wanted.fetch_offset}"
        raise broker_error(code or ErrorCode.unknown_server_error, message=message, node=f"node {node}", api_key=1)
    return fetched


def is_throttled_away(response: FetchResponse) -> bool:
    """True if a quota stopped the broker from reading anything: such a response has no information
    about any partition.
    """
    return response.throttle_time_ms > 0 and not response.error_code and not response.topics


def records_of(fetched: PartitionFetched) -> memoryview:
    """The bytes of an answer."""
    return fetched.records if isinstance(fetched.records, memoryview) else NOTHING
