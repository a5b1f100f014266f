"""Batches for one leader as a Produce request, and its response by partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from clients.producer.core.accumulator import Outgoing, TokenT
from wire.batches.record_batch import Compression
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.produce_codec import (
    PartitionProduced,
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    TopicRecords,
)


def produce_request(
    batches: Sequence[Outgoing[TokenT]],
    topic_id: Callable[[str], UUID | None],
    *,
    acks: int,
    timeout_ms: int,
    compression: Compression,
) -> ProduceRequest:
    """The request that carries the batches, which are sealed here; `topic_id` finds a topic's
    id.
    """
    topics: dict[str, list[PartitionRecords]] = {}
    for batch in batches:
        topic, partition = batch.place
        topics.setdefault(topic, []).append(PartitionRecords(partition, batch.seal(compression)))
    named = [TopicRecords(name, topic_id(name), partitions) for name, partitions in topics.items()]
    return ProduceRequest(None, acks, timeout_ms, named)


def produced_by_partition(
    request: ProduceRequest, response: ProduceResponse
) -> Mapping[PartitionKey, PartitionProduced]:
    """The response's answers; versions that name topics by id get their names from the request."""
    names = {topic.topic_id: topic.name for topic in request.topics}
    return {
        (topic.name or names.get(topic.topic_id, ""), produced.partition_index): produced
        for topic in response.topics
        for produced in topic.partitions
    }
