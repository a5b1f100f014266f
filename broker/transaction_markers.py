"""Writes transaction markers into partitions that this broker leads, once, in order with everything else there.

A marker of an older producer epoch or coordinator is refused, and one that was there before where each transaction has an epoch of its own.
Partitions of `__consumer_offsets` go through the group coordinator, whose memory must see the marker where the log has it. Under a
link's fence the markers of committed transactions still pass: their producers were told so before, and the failover waits for them.
Called by the WriteTxnMarkers handler, by `marker_sender.py` for what is local, and by `hanging_transactions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.coordinator import GroupCoordinator
from broker.core.cluster_image import OFFSETS_TOPIC, ClusterImage, LinkRole
from broker.core.group_messages import EndProducerTransaction, TopicPartition
from broker.core.transaction_states import BUMPING_CLIENT_VERSION
from broker.hosted_partition import ALL_IN_SYNC, HostedPartition, PartitionFailure
from broker.internal_log import append_and_commit
from broker.replicas import Replicas
from broker.state_shard import CoordinatorRefusal
from runtime.clock import Clock
from wire.transaction_records import encode_marker

COMMIT_TIMEOUT_MS = 10_000


class TransactionEnd(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


class TransactionMarkers:
    """See the module."""

    def __init__(
        self, image: Callable[[], ClusterImage], replicas: Replicas, groups: GroupCoordinator, clock: Clock
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    async def write(
        self, end: TransactionEnd, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The outcome by partition; none means that every in-sync replica has the marker."""
        outcomes = await asyncio.gather(*(self._outcome(end, partition) for partition in partitions))
        return dict(zip(partitions, outcomes, strict=True))

    async def _outcome(self, end: TransactionEnd, partition: TopicPartition) -> ErrorCode:
        try:
            hosted = self._replicas.get(self._image(), partition.topic, partition.partition)
            hosted.check_writable(ALL_IN_SYNC, passes_fence=self._passes_fence(end, partition.topic))
            _check_current(hosted, end)
            if partition.topic == OFFSETS_TOPIC:
                await self._groups.end_transaction(partition.partition, _command(end))
            else:
                await self.append(hosted, end)
        except PartitionFailure as failure:
            return failure.code
        except CoordinatorRefusal as refusal:
            return refusal.code
        return ErrorCode.none

    def _passes_fence(self, end: TransactionEnd, topic: str) -> bool:
        image = self._image()
        return end.is_commit and image.role_in(image.link_of(topic)) is LinkRole.FENCED

    async def append(self, hosted: HostedPartition, end: TransactionEnd) -> None:
        """Append the marker to an ordinary partition and wait until it is committed. PartitionFailure."""
        hosted.guards.withdraw(end.producer_id)
        marker = encode_marker(
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            is_commit=end.is_commit,
            coordinator_epoch=end.coordinator_epoch,
            now_ms=self._clock.now_ms(),
        )
        passes_fence = self._passes_fence(end, hosted.topic)
        await append_and_commit(self._replicas, hosted, marker, timeout_ms=COMMIT_TIMEOUT_MS, passes_fence=passes_fence)


def _check_current(hosted: HostedPartition, end: TransactionEnd) -> None:
    known = hosted.log.producers.get(end.producer_id)
    if known is None:
        return
    if end.producer_epoch < known.producer_epoch:
        raise PartitionFailure(ErrorCode.invalid_producer_epoch)
    if end.transaction_version >= BUMPING_CLIENT_VERSION and end.producer_epoch == known.producer_epoch:
        # it was here before: an open transaction of this epoch is the next one, which it must not end (KIP-1228)
        raise PartitionFailure(ErrorCode.invalid_producer_epoch)
    if end.coordinator_epoch < known.coordinator_epoch:
        raise PartitionFailure(ErrorCode.transaction_coordinator_fenced)


def _command(end: TransactionEnd) -> EndProducerTransaction:
    return EndProducerTransaction(
        group_id="",
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        is_commit=end.is_commit,
        coordinator_epoch=end.coordinator_epoch,
    )
