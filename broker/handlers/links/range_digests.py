"""RangeDigests (private): digests of what the logs that this broker leads hold, by ranges of
offsets, so that two sites are compared without sending their logs.

Behaviour: any role of the site answers. Leaves that have ended and have no digest yet are worked
out first, up to a bound; `pending_leaves` says how many are left, and the client asks again.
Versions: 0. Not done: replicas other than the leader.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from broker.log.core.leaf_digests import DIGEST_BYTES, LEAF_OFFSETS, first_whole_leaf, node_count, node_digests
from broker.log.digesting import seal_some, sealable_end
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.metadata.core.access import TOOL_REPLICA_ID
from broker.metadata.request_context import RequestContext
from broker.replication.hosted_partition import PartitionFailure
from broker.services import BrokerServices
from wire.protocol.private import PRIVATE_VERSIONS
from wire.protocol.range_digest_messages import (
    DIGESTS_MAX,
    NO_END,
    PARTITIONS_MAX,
    RANGE_DIGESTS,
    RangeDigestsAnswer,
    RangeDigestsResponse,
    RangeDigestsTopicAnswer,
)

API_KEY = RANGE_DIGESTS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[RANGE_DIGESTS]

PIECES_MAX: Final = 16
"""Pieces of logs that one request has read before it is answered."""


async def handle(services: BrokerServices, _context: RequestContext, request: Any) -> Any:
    """Answer a RangeDigests request."""
    answering = _Answering(services)
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
        answering.digests_left = 0
    topics = tuple(
        [
            RangeDigestsTopicAnswer(
                name=topic.name, partitions=tuple([await answering.answer(topic.name, part) for part in topic.partitions])
            )
            for topic in request.topics
        ]
    )
    return RangeDigestsResponse(leaf_offsets=i32(LEAF_OFFSETS), topics=topics)


class _Answering:
    """One request's answers, and what is left of its bounds."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._pieces_left = PIECES_MAX
        self.digests_left = DIGESTS_MAX

    async def answer(self, topic: str, query: Any) -> RangeDigestsAnswer:
        """What one partition's log holds, or why that is not answered."""
        try:
            log = self._log(topic, query.index)
            await self._catch_up(log)
            return self._counted(self._log(topic, query.index), query)
        except PartitionFailure as failure:
            return RangeDigestsAnswer(index=query.index, error_code=failure.code, error_message=failure.reason)
        except StorageError as error:
            self._services.replicas.storage_failed(error)
            return RangeDigestsAnswer(
                index=query.index, error_code=ErrorCode.kafka_storage_error, error_message=str(error)
            )

    def _log(self, topic: str, index: int) -> PartitionLog:
        hosted = self._services.replicas.get(self._services.image, topic, index)
        hosted.check_readable(TOOL_REPLICA_ID)
        if hosted.log.config.is_compacted:
            raise PartitionFailure(
                ErrorCode.unsupported_for_message_format, "a compacted log has no digests: each site compacts on its own"
            )
        return hosted.log

    async def _catch_up(self, log: PartitionLog) -> None:
        while self._pieces_left > 0:
            if not await seal_some(log):
                return
            self._pieces_left -= 1

    def _counted(self, log: PartitionLog, query: Any) -> RangeDigestsAnswer:
        digests = log.digests
        if digests.failure:
            raise PartitionFailure(ErrorCode.kafka_storage_error, digests.failure)
        digests.begin_at(log.log_start_offset)
        begin = max(digests.first_leaf, query.first_leaf)
        end = digests.end_leaf if query.end_leaf == NO_END else min(digests.end_leaf, query.end_leaf)
        count = node_count(begin=begin, end=end, span=query.span) if query.span >= 0 else DIGESTS_MAX + 1
        if count > self.digests_left:
            raise PartitionFailure(
                ErrorCode.invalid_request, f"an answer has {DIGESTS_MAX} digests at most, of {PARTITIONS_MAX} partitions"
            )
        self.digests_left -= count
        found = node_digests(digests.leaves(), digests.first_leaf, begin=begin, end=end, span=query.span)
        assert len(found) == count * DIGEST_BYTES
        known_end = max(digests.end_leaf, first_whole_leaf(log.log_start_offset))
        return RangeDigestsAnswer(
            index=query.index,
            error_code=ErrorCode.none,
            log_start_offset=i64(log.log_start_offset),
            high_watermark=i64(log.high_watermark),
            first_leaf=i64(begin),
            end_leaf=i64(end),
            pending_leaves=i32(min(max(sealable_end(log) - known_end, 0), 2**31 - 1)),
            digests=found,
        )
