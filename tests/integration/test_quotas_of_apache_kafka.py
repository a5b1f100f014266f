"""Our reading parts against an Apache Kafka broker whose quota they exceed: it answers with no
partition at all (KIP-124, KIP-219).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from clients.reader.single_fetches import fetch_at_leader, is_throttled_away, records_of
from mirror.link.ports import FetchPart
from mirror.sites.kafka_transfer import KafkaFetch
from runtime.addresses import parse_host_ports
from tests.support.pairs.translate_links import create_topic, produce_batches
from tests.support.processes.apache_kafka import ApacheKafka
from wire.batches.record_batch import iterate_headers
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.fetch_codec import FetchResponse

ALTER_CLIENT_QUOTAS = 49
QUOTA_BYTES_PER_S = 60_000
READ_BYTES = 200_000
BATCHES, BATCH_RECORDS, RECORD_BYTES = 20, 5, 5_000


class Throttled:
    """Counts the answers that a quota left empty, as `KafkaClient.fetch` returned them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        fetch = KafkaClient.fetch

        async def counted(client: KafkaClient, *arguments: Any, **named: Any) -> FetchResponse:
            response = await fetch(client, *arguments, **named)
            self.count += is_throttled_away(response)
            return response

        monkeypatch.setattr(KafkaClient, "fetch", counted)


async def slow_client(kafka: ApacheKafka, topic: str) -> ConnectionOptions:
    """A topic of a megabyte, and a client id that may read 60 kB a second."""
    client_id = f"slow-{uuid.uuid4().hex[:8]}"
    await create_topic(kafka.bootstrap_servers, topic)
    await produce_batches(kafka.bootstrap_servers, topic, 0, 0, BATCHES, records=BATCH_RECORDS, size=RECORD_BYTES)
    async with KafkaClient(kafka.bootstrap_servers) as client:
        connection = await client.connection(min((await client.metadata([])).brokers))
        entity = [{"entity_type": "client-id", "entity_name": client_id}]
        ops = [{"key": "consumer_byte_rate", "value": float(QUOTA_BYTES_PER_S), "remove": False}]
        values = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        (result,) = (await connection.call(ALTER_CLIENT_QUOTAS, values)).entries
        assert not result.error_code, result.error_message
    options = ConnectionOptions(client_id=client_id)
    await quota_applies(kafka, topic, options)
    return options


async def quota_applies(kafka: ApacheKafka, topic: str, options: ConnectionOptions) -> None:
    """Reads the topic's beginning again and again until an answer is empty: the broker applies a
    quota after its answer.
    """
    async with asyncio.timeout(60), KafkaClient(kafka.bootstrap_servers, options) as client:
        leader = await client.leader(topic, 0)
        wanted = TopicToFetch(topic, client.cluster.topics[topic].topic_id, [PartitionToFetch(0, 0, READ_BYTES)])
        request = FetchRequest([wanted], max_wait_ms=100, max_bytes=READ_BYTES)
        while not is_throttled_away(await client.fetch(leader, request)):
            pass


def end_of(records: Any, offset: int) -> int:
    """The offset behind the last whole batch."""
    for _, header in iterate_headers(records, may_end_in_partial=True):
        offset = header.next_offset
    return offset


async def test_a_fetch_at_the_leader_outlasts_a_quota(
    apache_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"q-{uuid.uuid4().hex[:8]}"
    options = await slow_client(apache_kafka, topic)
    throttled, offset = Throttled(monkeypatch), 0
    async with KafkaClient(apache_kafka.bootstrap_servers, options) as client:
        while offset < BATCHES * BATCH_RECORDS:
            fetched = await fetch_at_leader(client, (topic, 0), offset, max_bytes=READ_BYTES)
            offset = end_of(records_of(fetched), offset)
    assert throttled.count > 0, "the quota throttled nothing: this test shows nothing"


async def test_a_mirror_s_fetch_takes_no_throttled_answer_for_a_quiet_source(
    apache_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"q-{uuid.uuid4().hex[:8]}"
    options = await slow_client(apache_kafka, topic)
    async with KafkaClient(apache_kafka.bootstrap_servers) as client:
        metadata = await client.metadata([topic])
        topic_id, node_id = metadata.topics[topic].topic_id, metadata.topics[topic].partitions[0].leader_id
    assert topic_id is not None
    throttled, offset = Throttled(monkeypatch), 0
    port = KafkaFetch(
        parse_host_ports(apache_kafka.bootstrap_servers),
        options,
        min_bytes=1,
        max_bytes=READ_BYTES,
        partition_max_bytes=READ_BYTES,
        max_wait_ms=100,
    )
    try:
        while offset < BATCHES * BATCH_RECORDS:
            part = FetchPart(topic_id=topic_id, offset=offset, leader_epoch=-1, generation=1)
            (answer,) = await port.fetch(node_id, {TopicPartition(topic, 0): part})
            offset = end_of(answer.records, offset)
    finally:
        await port.close()
    assert throttled.count > 0, "the quota throttled nothing: this test shows nothing"
