"""ListOffsets: earliest, latest, by timestamp, and of the largest timestamp.

Behaviour: latest is the high watermark for clients, the last stable offset for read-committed ones.
A new leader that does not know the former one's high watermark yet answers OFFSET_NOT_AVAILABLE
instead of a lower offset (KIP-207). Only leaders answer. Replica id -2 may ask any role, and gets
the end of the records that all in-sync replicas have. A time below zero without a meaning in the
request's version gets UNSUPPORTED_VERSION, a partition that is named twice INVALID_REQUEST each
time. Versions: 1 to 11. Not done: earliest and
latest tiered offsets (this broker has no tiered storage): the response is -1 without an error.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.replicas import Replicas
from wire.protocol.ids import CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP

API_KEY = 2
MIN_VERSION = 1
MAX_VERSION = 11
OFFSET_NOT_AVAILABLE_FROM: Final = 5

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_KNOWN_FROM: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version from which each time below zero has its meaning."""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas


class _Found(NamedTuple):
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ListOffsets request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    named = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics = tuple(
        build.part(
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                _answered(build, part, ErrorCode.invalid_request, _Found())
                if named[topic.name, part.partition_index] > 1
                else _partition(doors, image, build=build, request=request, topic=topic.name, partition=part)
                for part in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return build.response(topics=topics)


def _partition(doors: Doors, image: ClusterImage, build: Any, request: Any, topic: str, partition: Any) -> Any:
    error, found = ErrorCode.none, _Found()
    try:
        _check_known(int(partition.timestamp), build.version)
        hosted = doors.replicas.get(image, topic, partition.partition_index)
        hosted.check_readable(request.replica_id)
        hosted.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
        end_offset = hosted.readable_end(
            replica_id=request.replica_id, isolation_level=getattr(request, "isolation_level", 0)
        )
        found = _find(hosted, int(partition.timestamp), end_offset, replica_id=request.replica_id)
        # only for clients: followers and tools compare logs and need the unchanged offset
        if request.replica_id == CONSUMER and _may_go_back(hosted, int(partition.timestamp), found):
            found = _Found()
            error = (
                ErrorCode.leader_not_available
                # KIP-207: older clients know LEADER_NOT_AVAILABLE, which they also retry
                if build.version < OFFSET_NOT_AVAILABLE_FROM
                else ErrorCode.offset_not_available
            )
    except PartitionFailure as failure:
        error = failure.code
    except StorageError as storage_error:
        doors.replicas.storage_failed(storage_error)
        error = failure_of(storage_error).code
    return _answered(build, partition, error, found)


def _answered(build: Any, partition: Any, error: ErrorCode, found: _Found) -> Any:
    return build.part(
        "ListOffsetsPartitionResponse",
        partition_index=partition.partition_index,
        error_code=error,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _check_known(timestamp_ms: int, version: int) -> None:
    """PartitionFailure for a time below zero that has no meaning in this version: as a time it
    would find the first record.
    """
    if timestamp_ms < 0 and version < _KNOWN_FROM.get(timestamp_ms, version + 1):
        raise PartitionFailure(ErrorCode.unsupported_version)


def _may_go_back(hosted: HostedPartition, timestamp_ms: int, found: _Found) -> bool:
    """True while an earlier leader may have shown clients more than this one knows to be safe: the
    offset that was found must not be returned then.
    """
    if hosted.state.high_watermark >= hosted.state.leader_epoch_start_offset:
        return False
    return timestamp_ms == LATEST_TIMESTAMP or (timestamp_ms >= 0 and found.offset < 0)


def _find(hosted: HostedPartition, timestamp_ms: int, end_offset: int, *, replica_id: int) -> _Found:
    log = hosted.log
    if timestamp_ms == LATEST_TIMESTAMP:
        # The epoch of the record before the returned end: records after it may have later epochs. A
        # client also gets an epoch that has only begun. A tool or mirror compares histories,
        # and an epoch without a record is not part of one.
        is_end_of_log = end_offset == log.log_end_offset
        if is_end_of_log and replica_id >= CONSUMER:
            return _Found(end_offset, -1, log.latest_epoch)
        return _Found(end_offset, -1, hosted.last_record_epoch if is_end_of_log else log.epoch_at(end_offset - 1))
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL):
        return _Found(log.log_start_offset, -1, log.epoch_at(log.log_start_offset))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _Found()
    found = log.offset_of_max_timestamp() if timestamp_ms == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp_ms)
    # a match at or above the readable end is invisible to this reader
    if found is None or found.offset >= end_offset:
        return _Found()
    return _Found(found.offset, found.timestamp_ms, found.leader_epoch)
