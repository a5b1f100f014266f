"""DeleteRecords: moves the log start up to an offset, or (-1) to the high watermark; records below
it become unreadable.

Behaviour: as Kafka. Only the leader answers. It refuses offsets beyond the high watermark
(OFFSET_OUT_OF_RANGE), internal topics and topics with `cleanup.policy=compact` alone
(POLICY_VIOLATION). The new log starts are on disk before the answer, so that a crash does not
restore deleted records; the next retention pass removes whole segments below. The answer waits
until every live follower's log begins there too, at most for the request's timeout (then
REQUEST_TIMED_OUT, although the records are deleted). Versions: 0 to
2. Not done: nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.replicas import Replicas
from wire.protocol.ids import NO_OFFSET
from wire.rules.topic_names import is_internal_topic

API_KEY = 21
MIN_VERSION = 0
MAX_VERSION = 2

UP_TO_HIGH_WATERMARK = -1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    logs: LogStore
    replicas: Replicas


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DeleteRecords request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    outcomes = [
        (topic.name, [(asked, _advance(doors, image, topic.name, asked)) for asked in topic.partitions])
        for topic in request.topics
    ]
    # once for all partitions: the checkpoint is one file for each directory
    failure = await _keep_log_starts(doors)
    advanced = [outcome for _, partitions in outcomes for _, outcome in partitions if isinstance(outcome, Advanced)]
    if failure is None and advanced:
        await _Followers(doors, advanced).wait(max(request.timeout.total_seconds(), 0) * 1000)
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


class Advanced:
    """A partition whose log start has moved, and the result of the wait for its followers."""

    def __init__(self, hosted: HostedPartition, offset: int) -> None:
        self.hosted = hosted
        self.offset = offset
        self.low_watermark = NO_OFFSET
        self.error = ErrorCode.request_timed_out
        self._led_since_epoch = hosted.state.led_since_epoch

    # an interrupted leadership may have appended other records: nothing can be promised for them
    def look(self, live: Collection[int]) -> None:
        """Update how far the live followers are."""
        state = self.hosted.state
        if not state.is_leader or state.led_since_epoch != self._led_since_epoch:
            self.low_watermark, self.error = NO_OFFSET, ErrorCode.not_leader_or_follower
            return
        self.low_watermark = state.low_watermark(self.hosted.log.log_start_offset, live)
        if self.low_watermark >= self.offset:
            self.error = ErrorCode.none


class _Followers:
    """Waits until the logs of all partitions' live followers begin where their leader's does."""

    def __init__(self, doors: Doors, advanced: list[Advanced]) -> None:
        self._doors = doors
        # the list shrinks while partitions are settled
        self._waited = advanced
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, timeout_ms: float) -> None:
        """Return when there is nothing more to wait for, or the time is up."""
        self._look()
        if not self._waited:
            return
        purgatory = self._doors.replicas.purgatory
        keys = {found.hosted.key for found in self._waited}
        entry = purgatory.wait(self, DelayedOperation.DELETE_RECORDS, keys=keys, timeout_ms=timeout_ms)
        try:
            await self._done
        finally:
            purgatory.forget(entry)

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """A follower fetched or disconnected, or the leadership changed; True if no partition is
        pending.
        """
        self._look()
        return not self._waited

    def _look(self) -> None:
        live = self._doors.cluster.image.brokers.keys()
        for found in self._waited:
            found.look(live)
        self._waited = [found for found in self._waited if found.error is ErrorCode.request_timed_out]

    def complete(self) -> None:
        """Answer now: the remaining partitions have timed out."""
        if not self._done.done():
            self._done.set_result(None)


def _advance(doors: Doors, image: ClusterImage, topic: str, asked: Any) -> Advanced | PartitionFailure:
    """The partition with its new log start, or the reason why there is none."""
    try:
        hosted = doors.replicas.get(image, topic, asked.partition_index)
        # acks=1: DeleteRecords itself waits for followers
        hosted.check_writable(acks=1)
    except PartitionFailure as failure:
        return failure
    if is_internal_topic(topic):
        return PartitionFailure(
            ErrorCode.invalid_topic_exception, f"{topic} is internal: its records cannot be deleted"
        )
    if hosted.config.is_compacted and not hosted.config.is_deleted:
        return PartitionFailure(
            ErrorCode.policy_violation, f"{topic} has a cleanup.policy without delete: its records cannot be deleted"
        )
    high_watermark = hosted.state.high_watermark
    offset = high_watermark if asked.offset == UP_TO_HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= high_watermark:
        return PartitionFailure(ErrorCode.offset_out_of_range)
    doors.replicas.advance_log_start(hosted, offset)
    return Advanced(hosted, offset)


async def _keep_log_starts(doors: Doors) -> PartitionFailure | None:
    try:
        await doors.logs.checkpoint_log_start_offsets()
    except StorageError as error:
        return failure_of(error)
    return None


def _result(build: Any, partition: int, outcome: Advanced | PartitionFailure, failure: PartitionFailure | None) -> Any:
    if isinstance(outcome, PartitionFailure):
        low_watermark, error = NO_OFFSET, outcome.code
    elif failure is not None:
        low_watermark, error = NO_OFFSET, failure.code
    else:
        low_watermark, error = outcome.low_watermark, outcome.error
    return build.part(
        "DeleteRecordsPartitionResult", partition_index=partition, low_watermark=low_watermark, error_code=error
    )
