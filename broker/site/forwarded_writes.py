"""Writes to topics that the other site of a link leads: requests are sent to the leaders there, and
their results come back.

Used by `broker/handlers/records/role_moves.py` for requests that waited while the active role
moved. The records keep their bytes, so the leaders there recognise what an idempotent producer
repeats. A leader that does not answer may have written the records: its partitions get
REQUEST_TIMED_OUT, and the client sends the records again. The former site has checked the client's
rights; if the other site does not accept this broker's principal, the client is refused as by a
broker that forwards nothing, because the failure is not the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from broker.authentication.inter_broker import Secured, plaintext
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.network.entities import topic_id_bytes
from broker.site.active_site import link_address
from runtime.addresses import HostPort
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError
from wire.client.connection import ConnectionOptions
from wire.client.connection_pool import ConnectionPool
from wire.client.requests.broker_requests import request_produce
from wire.protocol.ids import NO_NODE
from wire.protocol.messages.produce_codec import (
    PartitionProduced,
    PartitionRecords,
    ProduceRequest,
    TopicProduced,
    TopicRecords,
)

log = get_logger(__name__)

ROLE_AWAITED_MS: Final = 2_000
"""Time (ms) that a leader there may wait for the confirmation of its role."""
ANSWERED_WITHIN_MS: Final = 1_000
"""Time (ms) for the way there and back, beside the waits of the leader."""
IN_FLIGHT_MAX: Final = 100
"""Requests in flight on the connection to one broker."""

Place = tuple[int, int]
"""The positions of a topic and of a partition in a request."""


class ForwardedWrites:
    """Connections to the leaders of peers, opened when first needed."""

    def __init__(self, secured: Secured = plaintext) -> None:
        options = ConnectionOptions(client_id=FORWARDED_CLIENT_ID, in_flight_max=IN_FLIGHT_MAX)
        self._pool = ConnectionPool(options, secured)

    async def results(self, image: ClusterImage, request: ProduceRequest) -> list[TopicProduced]:
        """The result of each partition, in the order of the request: NOT_LEADER_OR_FOLLOWER where
        no leader is known or reached. The request's `acks` is not 0.
        """
        places: dict[HostPort | None, list[Place]] = {}
        for at, topic in enumerate(request.topics):
            for index, partition in enumerate(topic.partitions):
                address = _leader_address(image, topic_name(image, topic), partition.partition_index)
                places.setdefault(address, []).append((at, index))
        # the leaders at the same time: a request of the client has one timeout for all
        answers = await asyncio.gather(*(self._ask(image, at, request, some) for at, some in places.items()))
        found = {place: result for some in answers for place, result in some.items()}
        return [
            TopicProduced(topic.name, topic.topic_id, [found[at, index] for index in range(len(topic.partitions))])
            for at, topic in enumerate(request.topics)
        ]

    async def _ask(
        self, image: ClusterImage, address: HostPort | None, request: ProduceRequest, places: Sequence[Place]
    ) -> dict[Place, PartitionProduced]:
        if address is None:
            return _failed(request, places, ErrorCode.not_leader_or_follower)
        part = request._replace(topics=_topics_at(image, request, places))
        timeout_ms = max(request.timeout_ms, ROLE_AWAITED_MS) + ANSWERED_WITHIN_MS
        try:
            connection = await self._pool.get(address)
        except KafkaClientError as error:
            _log_failure(address, error)
            return _failed(request, places, ErrorCode.not_leader_or_follower)
        try:
            answer = await request_produce(connection, part, timeout_ms=timeout_ms)
        except KafkaClientError as error:
            _log_failure(address, error)
            return _failed(request, places, ErrorCode.request_timed_out)
        answered = [] if answer is None else [one for topic in answer.topics for one in topic.partitions]
        if len(answered) != len(places):
            return _failed(request, places, ErrorCode.request_timed_out)
        if any(one.error_code == ErrorCode.topic_authorization_failed for one in answered):
            log.warning(
                "writes may not be forwarded: this broker's principal needs ClusterAction at the other site",
                to=str(address),
            )
        return {place: _of_client(one) for place, one in zip(places, answered, strict=True)}

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


def _of_client(result: PartitionProduced) -> PartitionProduced:
    """The result for the client. A refusal of this broker's principal has written nothing."""
    if result.error_code != ErrorCode.topic_authorization_failed:
        return result
    return PartitionProduced(result.partition_index, ErrorCode.not_leader_or_follower)


def topic_name(image: ClusterImage, topic: TopicRecords | TopicProduced) -> str:
    """The name of a topic that may have an id alone; empty if the id is unknown."""
    return topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "")


def _leader_address(image: ClusterImage, topic: str, index: int) -> HostPort | None:
    routed = image.routed_topic(topic)
    partition = None if routed is None or routed.is_own_site else routed.topic.partitions.get(index)
    broker = image.routed_brokers().get(NO_NODE if partition is None else partition.leader)
    return None if broker is None else link_address(broker)


def _topics_at(image: ClusterImage, request: ProduceRequest, places: Sequence[Place]) -> list[TopicRecords]:
    """The part of the request at these places, which are in its order."""
    chosen: dict[int, list[PartitionRecords]] = {}
    for at, index in places:
        chosen.setdefault(at, []).append(request.topics[at].partitions[index])
    # with the names: versions without topic ids need them
    return [
        request.topics[at]._replace(name=topic_name(image, request.topics[at]), partitions=partitions)
        for at, partitions in chosen.items()
    ]


def _failed(request: ProduceRequest, places: Sequence[Place], code: ErrorCode) -> dict[Place, PartitionProduced]:
    return {
        (at, index): PartitionProduced(request.topics[at].partitions[index].partition_index, code)
        for at, index in places
    }


def _log_failure(address: HostPort, error: KafkaClientError) -> None:
    log.warning("a write could not be forwarded", to=str(address), reason=str(error))
