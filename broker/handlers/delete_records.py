"""DeleteRecords: the log start moves up to an offset, or (-1) to the high watermark; what lies below is not read any more.

Behaviour: as Kafka. Only the leader answers, never beyond the high watermark (OFFSET_OUT_OF_RANGE), not for internal topics nor for
those that are only compacted (POLICY_VIOLATION). The new log starts are on disk before the answer, so that a crash brings
nothing back; whole segments below go with the next retention pass. Versions: 0 to 2.
Not done: waiting for followers; they take the leader's log start with their next fetch.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.cluster_image import ClusterImage
from broker.entities import builder
from broker.hosted_partition import PartitionFailure
from broker.log.errors import StorageError
from broker.replicas import failure_of
from broker.services import BrokerServices, RequestContext
from wire.links import is_internal_topic

API_KEY = 21
MIN_VERSION = 0
MAX_VERSION = 2

UP_TO_HIGH_WATERMARK = -1


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a DeleteRecords request."""
    build, image = builder(API_KEY, context.api_version), services.image
    outcomes = [
        (topic.name, [(asked, _advance(services, image, topic.name, asked)) for asked in topic.partitions])
        for topic in request.topics
    ]
    failure = _keep_log_starts(services)
    return build.response(
        topics=tuple(
            build.part(
                "DeleteRecordsTopicResult",
                name=name,
                partitions=tuple(
                    _result(build, asked.partition_index, outcome, failure) for asked, outcome in partitions
                ),
            )
            for name, partitions in outcomes
        )
    )


def _advance(services: BrokerServices, image: ClusterImage, topic: str, asked: Any) -> int | PartitionFailure:
    """The new log start, or why there is none."""
    try:
        hosted = services.replicas.get(image, topic, asked.partition_index)
        hosted.check_writable(acks=1)
    except PartitionFailure as failure:
        return failure
    if is_internal_topic(topic):
        return PartitionFailure(ErrorCode.invalid_topic_exception, f"{topic} is internal")
    if not hosted.config.is_deleted:
        return PartitionFailure(ErrorCode.policy_violation, f"{topic} is compacted and does not delete")
    high_watermark = hosted.state.high_watermark
    offset = high_watermark if asked.offset == UP_TO_HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= high_watermark:
        return PartitionFailure(ErrorCode.offset_out_of_range)
    services.replicas.advance_log_start(hosted, offset)
    return hosted.log.log_start_offset


def _keep_log_starts(services: BrokerServices) -> PartitionFailure | None:
    try:
        services.logs.checkpoint_log_start_offsets()
    except StorageError as error:
        return failure_of(error)
    return None


def _result(build: Any, partition: int, outcome: int | PartitionFailure, failure: PartitionFailure | None) -> Any:
    problem = outcome if isinstance(outcome, PartitionFailure) else failure
    return build.part(
        "DeleteRecordsPartitionResult",
        partition_index=partition,
        low_watermark=-1 if isinstance(outcome, PartitionFailure) else outcome,
        error_code=ErrorCode.none if problem is None else problem.code,
    )
