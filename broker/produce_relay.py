"""Produce requests that come to a broker which has just handed its leaderships over go on to the new leaders.

The client gets the new leader's own answer. What cannot be relayed keeps the answer that it would have had: not the leader. Not for
transactions, whose coordinators may be on their way as well, nor for producers that ask for no acknowledgement.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from broker.entities import topic_id_bytes
from runtime.logs import get_logger
from wire.broker_requests import request_produce
from wire.client_errors import KafkaClientError
from wire.produce_codec import PartitionProduced, PartitionRecords, ProduceRequest, TopicProduced, TopicRecords

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = get_logger(__name__)

ACKS_NONE: Final = 0


class _Moved(NamedTuple):
    """A partition of the request that is led elsewhere, by its places in the request."""

    topic_at: int
    partition_at: int
    topic: str
    records: PartitionRecords


def is_relayed(services: BrokerServices, request: ProduceRequest) -> bool:
    """Whether the request has to wait for the hand-over, and may have to go on."""
    return services.hand_over.has_begun and request.acks != ACKS_NONE and request.transactional_id is None


async def relay(services: BrokerServices, request: ProduceRequest, topics: list[TopicProduced]) -> list[TopicProduced]:
    """The answers, with those of new leaders in place of "not the leader"."""
    by_leader: dict[int, list[_Moved]] = {}
    for topic_at, (asked, answered) in enumerate(zip(request.topics, topics, strict=True)):
        name = asked.name or services.image.topic_names.get(topic_id_bytes(asked.topic_id), "")
        for partition_at, (records, produced) in enumerate(zip(asked.partitions, answered.partitions, strict=True)):
            leader = produced.current_leader.leader_id
            if produced.error_code == ErrorCode.not_leader_or_follower and leader >= 0:
                by_leader.setdefault(leader, []).append(_Moved(topic_at, partition_at, name, records))
    if not by_leader:
        return topics
    results = [list(topic.partitions) for topic in topics]
    asking = [_ask(services, request, leader, moved) for leader, moved in by_leader.items()]
    for answers in await asyncio.gather(*asking):
        for moved, produced in answers:
            results[moved.topic_at][moved.partition_at] = produced
    return [topic._replace(partitions=partitions) for topic, partitions in zip(topics, results, strict=True)]


async def _ask(
    services: BrokerServices, request: ProduceRequest, leader: int, moved: list[_Moved]
) -> list[tuple[_Moved, PartitionProduced]]:
    """The new leader's answers; none when it does not answer."""
    by_topic: dict[str, list[PartitionRecords]] = {}
    for partition in moved:
        by_topic.setdefault(partition.topic, []).append(partition.records)
    topics = [TopicRecords(name, None, records) for name, records in by_topic.items()]
    try:
        connection = await services.peers.connection(leader)
        response = await request_produce(
            connection, request._replace(topics=topics), timeout_ms=connection.request_timeout_ms + request.timeout_ms
        )
    except KafkaClientError as error:
        log.warning("records for a new leader are not relayed", leader=leader, reason=str(error))
        return []
    assert response is not None  # acknowledgements are asked for
    answers = {
        (topic.name, produced.partition_index): produced for topic in response.topics for produced in topic.partitions
    }
    found = ((partition, answers.get((partition.topic, partition.records.partition_index))) for partition in moved)
    return [(partition, produced) for partition, produced in found if produced is not None]
