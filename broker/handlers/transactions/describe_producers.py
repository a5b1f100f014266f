"""DescribeProducers: the state that the leader of a partition has of its producers; for tools that
look for hanging transactions.

Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.replicas import Replicas
from wire.protocol.ids import CONSUMER

API_KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeProducers request."""
    build = builder(API_KEY, context.api_version)
    return build.response(
        topics=tuple(
            build.part(
                "TopicResponse",
                name=topic.name,
                partitions=tuple(_partition(doors, build, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        )
    )


def _partition(doors: Doors, build: Any, topic: str, index: int) -> Any:
    if not is_valid_topic_name(topic):
        return _refused(build, index, ErrorCode.invalid_topic_exception, f"{topic!r} is not a topic name")
    try:
        hosted = doors.replicas.get(doors.cluster.image, topic, index)
        hosted.check_readable(CONSUMER)
    except PartitionFailure as failure:
        return _refused(build, index, failure.code, failure.reason)
    return build.part(
        "PartitionResponse",
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        active_producers=tuple(
            build.part(
                "ProducerState",
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.timestamp_ms,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=known.transaction_first_offset,
            )
            for known in hosted.log.producers.snapshot()
        ),
    )


def _refused(build: Any, index: int, error: ErrorCode, message: str | None) -> Any:
    return build.part(
        "PartitionResponse", partition_index=index, error_code=error, error_message=message, active_producers=()
    )
