"""RangeDigests (private): digests of the logs that this broker leads, by ranges of offsets, so that
two sites can be compared without sending their logs.

Behaviour: answered by any role of the site. Complete leaves without a digest are computed first,
for a bounded time; `pending_leaves` is the number that remain, and the client asks again. A range
with a batch that the scrubber found damaged is refused with INVALID_RECORD and the batch's offsets:
digests would not show it. A compacted log has no digests, but its damage is named too.
The damage of other replicas is in answers to DamagedBatches. Versions: 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64
from msgspec import Struct

from broker.log.digesting import digests_between, headers_between, seal_some
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.log_state import CorruptBatch
from broker.log.partition_log import PartitionLog
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.replicas import Replicas
from wire.batches.leaf_digests import LEAF_OFFSETS, first_whole_leaf, node_count, sealed_leaf
from wire.protocol.ids import DEBUGGING_CONSUMER
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.range_digest_messages import (
    DIGESTS_MAX,
    HEADER_OFFSETS_MAX,
    HEADER_RANGES_MAX,
    HEADERS,
    PARTITIONS_MAX,
    RANGE_DIGESTS,
    RangeDigestsAnswer,
    RangeDigestsResponse,
    RangeDigestsTopicAnswer,
)

API_KEY = RANGE_DIGESTS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[RANGE_DIGESTS]

CATCH_UP_S: Final = 1.0
"""Time (s) that one request may spend on reading logs before its response."""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a RangeDigests request."""
    answering = _Answering(doors)
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
        answering.digests_left = answering.header_ranges_left = -1
    topics = []
    for topic in request.topics:
        answers = [await answering.answer(topic.name, part) for part in topic.partitions]
        topics.append(RangeDigestsTopicAnswer(name=topic.name, partitions=tuple(answers)))
    return RangeDigestsResponse(leaf_offsets=i32(LEAF_OFFSETS), topics=tuple(topics))


class _Answering:
    """The responses of one request, and the part of its limits that is left."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._until_s = asyncio.get_running_loop().time() + CATCH_UP_S
        self.digests_left = DIGESTS_MAX
        self.header_ranges_left = HEADER_RANGES_MAX
        self.header_offsets_left = HEADER_OFFSETS_MAX

    async def answer(self, topic: str, query: Any) -> RangeDigestsAnswer:
        """The digests of the range in one partition's log, or the error."""
        try:
            log = self._log(topic, query.index)
            self._take_bounds(query)
            self._check_has_digests(log)
            await self._catch_up(log, _leaves_needed(query))
            return await self._counted(self._log(topic, query.index), query)
        except PartitionFailure as failure:
            return RangeDigestsAnswer(index=query.index, error_code=failure.code, error_message=failure.reason)
        except OffsetOutOfRange as error:
            return RangeDigestsAnswer(
                index=query.index, error_code=ErrorCode.offset_out_of_range, error_message=str(error)
            )
        except StorageError as error:
            self._doors.replicas.storage_failed(error)
            return RangeDigestsAnswer(
                index=query.index, error_code=ErrorCode.kafka_storage_error, error_message=str(error)
            )

    def _log(self, topic: str, index: int) -> PartitionLog:
        hosted = self._doors.replicas.get(self._doors.cluster.image, topic, index)
        hosted.check_readable(DEBUGGING_CONSUMER)
        return hosted.log

    def _check_has_digests(self, log: PartitionLog) -> None:
        """Raises PartitionFailure for a compacted log, which may be damaged nevertheless."""
        if not log.config.is_compacted:
            return
        self._check_undamaged(log.corrupt_batches)
        raise PartitionFailure(
            ErrorCode.unsupported_for_message_format, "a compacted log has no digests: each site compacts on its own"
        )

    def _check_undamaged(self, damaged: Sequence[CorruptBatch]) -> None:
        if damaged:
            first = damaged[0]
            raise PartitionFailure(
                ErrorCode.invalid_record,
                f"the batch at offsets {first.base_offset} to {first.last_offset} is damaged on the disk of broker "
                f"{self._doors.cluster.image.node_id}: {first.reason} ({len(damaged)} in all)",
            )

    def _take_bounds(self, query: Any) -> None:
        """Raises PartitionFailure for an invalid range, or if the answer would be too large."""
        if query.span < HEADERS or not 0 <= query.first_offset <= query.end_offset:
            raise PartitionFailure(
                ErrorCode.invalid_request,
                f"offsets {query.first_offset} to {query.end_offset} with span {query.span} are no range;"
                " accepted: first offset 0 or more, end offset not below it, span -1 or more",
            )
        if query.span == HEADERS:
            self.header_ranges_left -= 1
            self.header_offsets_left -= query.end_offset - query.first_offset
            is_bounded = min(self.header_ranges_left, self.header_offsets_left) >= 0
        else:
            self.digests_left -= node_count(query.first_offset, query.end_offset, span=query.span)
            is_bounded = self.digests_left >= 0
        if not is_bounded:
            raise PartitionFailure(
                ErrorCode.invalid_request,
                f"an answer has at most {DIGESTS_MAX} digests of {PARTITIONS_MAX} ranges, and the headers of "
                f"{HEADER_RANGES_MAX} ranges with {HEADER_OFFSETS_MAX} offsets together",
            )

    async def _catch_up(self, log: PartitionLog, end_leaf: int) -> None:
        """Compute the missing digests of leaves below `end_leaf`, as far as the time allows."""
        while log.digests.end_leaf < end_leaf and await seal_some(log):
            if asyncio.get_running_loop().time() >= self._until_s:
                return

    async def _counted(self, log: PartitionLog, query: Any) -> RangeDigestsAnswer:
        if log.digests.failure:
            raise PartitionFailure(ErrorCode.invalid_record, log.digests.failure)
        log_start_offset, high_watermark = log.log_start_offset, log.high_watermark
        if query.end_offset > query.first_offset and not (
            log_start_offset <= query.first_offset and query.end_offset <= high_watermark
        ):
            raise OffsetOutOfRange(query.first_offset, log_start_offset, high_watermark)
        self._check_undamaged(
            [one for one in log.corrupt_batches if query.first_offset <= one.base_offset < query.end_offset]
        )
        known_end = max(log.digests.end_leaf, first_whole_leaf(log_start_offset))
        pending_leaves = max(_leaves_needed(query) - known_end, 0)
        content: bytes | None = b""
        if pending_leaves == 0:
            content = await self._content(log, query)
        return RangeDigestsAnswer(
            index=query.index,
            error_code=ErrorCode.none,
            log_start_offset=i64(log_start_offset),
            high_watermark=i64(high_watermark),
            pending_leaves=i32(min(pending_leaves or (content is None), 2**31 - 1)),
            content=content or b"",
        )

    async def _content(self, log: PartitionLog, query: Any) -> bytes | None:
        if query.span == HEADERS:
            return await headers_between(log, query.first_offset, query.end_offset)
        return await digests_between(log, query.first_offset, query.end_offset, span=query.span)


def _leaves_needed(query: Any) -> int:
    """The leaf below which digests are needed for the answer; 0 if none are needed."""
    is_digest = query.span != HEADERS and query.first_offset < query.end_offset
    return sealed_leaf(query.end_offset) if is_digest else 0
