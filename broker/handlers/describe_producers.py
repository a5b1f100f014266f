"""DescribeProducers: the producers that a partition's leader remembers, with the transactions they have open.

Behaviour: as Kafka; only the leader answers. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.access import CONSUMER_REPLICA_ID
from broker.core.cluster_image import ClusterImage
from broker.entities import builder
from broker.hosted_partition import PartitionFailure
from broker.services import BrokerServices, RequestContext

API_KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a DescribeProducers request."""
    build, image = builder(API_KEY, context.api_version), services.image
    topics = tuple(
        build.part(
            "TopicResponse",
            name=topic.name,
            partitions=tuple(
                _partition(services, image, build, topic.name, index) for index in topic.partition_indexes
            ),
        )
        for topic in request.topics
    )
    return build.response(topics=topics)


def _partition(services: BrokerServices, image: ClusterImage, build: Any, topic: str, index: int) -> Any:
    error, message, producers = ErrorCode.none, None, ()
    try:
        hosted = services.replicas.get(image, topic, index)
        hosted.check_readable(CONSUMER_REPLICA_ID)
        producers = tuple(
            build.part(
                "ProducerState",
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
            for entry in hosted.log.describe_producers()
        )
    except PartitionFailure as failure:
        error, message = failure.code, failure.reason
    return build.part(
        "PartitionResponse",
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=producers,
    )
