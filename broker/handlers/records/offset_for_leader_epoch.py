"""OffsetForLeaderEpoch: where a leader epoch ends in this broker's log, for truncation by clients
and followers.

Behaviour: as Kafka; replica id -2 may ask any role. Versions: 2 to 4. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.replicas import Replicas
from wire.protocol.ids import CONSUMER

API_KEY = 23
MIN_VERSION = 2
MAX_VERSION = 4


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an OffsetForLeaderEpoch request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    topics = tuple(
        build.part(
            "OffsetForLeaderTopicResult",
            topic=topic.topic,
            partitions=tuple(
                _partition(doors, image, build=build, request=request, topic=topic.topic, partition=part)
                for part in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return build.response(topics=topics)


def _partition(doors: Doors, image: ClusterImage, build: Any, request: Any, topic: str, partition: Any) -> Any:
    error, epoch, end_offset = ErrorCode.none, -1, -1
    try:
        hosted = doors.replicas.get(image, topic, partition.partition)
        hosted.check_readable(getattr(request, "replica_id", CONSUMER))
        hosted.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
        epoch, end_offset = hosted.log.epoch_end_offset(partition.leader_epoch)
    except PartitionFailure as failure:
        error = failure.code
    return build.part(
        "EpochEndOffset",
        error_code=error,
        partition=partition.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )
