"""Writes transaction markers into partitions that this broker leads, once, in order with everything
else there.

A marker of an older producer epoch or coordinator is refused, and one that was there before where
each transaction has an epoch of its own: not before every in-sync replica has that, because the
caller takes the partition for done then. Partitions of `__consumer_offsets` go through the group
coordinator, whose memory must see the marker where the log has it. Under a link's fence the markers
of committed transactions still pass: their producers got the answer before, and the failover waits
for them. Called by the WriteTxnMarkers handler, by `marker_sender.py` for what is local, and by
`hanging_transactions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.coordination.internal_log import AwaitedCommit, OwnAppend
from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import EndProducerTransaction
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.replication.hosted_partition import ALL_IN_SYNC, HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from broker.transactions.core.transaction_states import BUMPING_CLIENT_VERSION
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import encode_marker
from wire.protocol.ids import TopicPartition

COMMIT_TIMEOUT_MS = 10_000  # a coordinator sends the marker again after it


class TransactionEnd(NamedTuple):
    """The content of a marker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    members: bytes | None = None
    """The header that names the transaction's partitions
    (`wire/batches/transaction_members.py`).
    """


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
        self, end: TransactionEnd, partitions: Collection[TopicPartition], *, is_promoting: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The outcome by partition; none means that every in-sync replica has the marker.

        `is_promoting`: a failover ends the transaction before this site takes writes; the caller
        has checked that it may.
        """
        image, marker = self._image(), self._encoded(end)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        waited_for: dict[TopicPartition, Awaitable[object]] = {}
        for partition in partitions:
            try:
                rest = self._begin(image, partition, end, marker, is_promoting=is_promoting)
            except PartitionFailure as failure:
                outcomes[partition] = failure.code
            else:
                outcomes[partition] = ErrorCode.none
                if rest is not None:
                    waited_for[partition] = rest
        # appended to all before the wait: one slow partition must not delay the others' markers
        ended = await asyncio.gather(*waited_for.values(), return_exceptions=True) if waited_for else ()
        for partition, found in zip(waited_for, ended, strict=True):
            if isinstance(found, PartitionFailure | CoordinatorRefusal):
                outcomes[partition] = found.code
            elif isinstance(found, BaseException):
                # a defect must not count as an outcome: the sender would take the partition for
                # done
                raise found
        return outcomes

    def _begin(
        self, image: ClusterImage, partition: TopicPartition, end: TransactionEnd, marker: bytes, *, is_promoting: bool
    ) -> Awaitable[object] | None:
        """Append to one partition; what to wait for until it is committed, None for nothing.
        PartitionFailure.
        """
        hosted = self._replicas.get(image, partition.topic, partition.partition)
        passes_fence = is_promoting or self._passes_fence(end, partition.topic)
        hosted.check_writable(ALL_IN_SYNC, passes_fence=passes_fence)
        # after the check of leadership: only a leader's log can say that a marker is final
        if _was_here(hosted, end):
            return self._settled(hosted)
        if partition.topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(partition.partition, _command(end))
        append = self._append(hosted, end, marker, passes_fence=passes_fence)
        # with one replica in sync nothing is to be waited for
        return None if append.is_committed else append.committed(COMMIT_TIMEOUT_MS)

    async def _settled(self, hosted: HostedPartition) -> None:
        """Refuse the marker that was here before, once what the log has is committed."""
        commit = AwaitedCommit(self._replicas, hosted, hosted.log.log_end_offset - 1)
        if not commit.is_committed:
            await commit.committed(COMMIT_TIMEOUT_MS)
        raise PartitionFailure(ErrorCode.invalid_producer_epoch)

    def _passes_fence(self, end: TransactionEnd, topic: str) -> bool:
        # an abort needs no passage: a promotion aborts what is open by itself
        if not end.is_commit:
            return False
        image = self._image()
        return image.role_in(image.link_of(topic)) is LinkRole.FENCED

    async def append(self, hosted: HostedPartition, end: TransactionEnd) -> None:
        """Append the marker to an ordinary partition and wait until it is committed.
        PartitionFailure.
        """
        append = self._append(hosted, end, self._encoded(end), passes_fence=self._passes_fence(end, hosted.topic))
        if not append.is_committed:
            await append.committed(COMMIT_TIMEOUT_MS)

    def _append(self, hosted: HostedPartition, end: TransactionEnd, marker: bytes, *, passes_fence: bool) -> OwnAppend:
        # before the append: a write that was verified earlier must not slip in behind the marker
        hosted.guards.withdraw(end.producer_id)
        return OwnAppend(self._replicas, hosted, marker, passes_fence=passes_fence)

    def _encoded(self, end: TransactionEnd) -> bytes:
        return encode_marker(
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            is_commit=end.is_commit,
            coordinator_epoch=end.coordinator_epoch,
            now_ms=self._clock.now_ms(),
            members=end.members,
        )


def _was_here(hosted: HostedPartition, end: TransactionEnd) -> bool:
    """True if the partition has the marker. Raises PartitionFailure when it has a later one."""
    known = hosted.log.producers.get(end.producer_id)
    if known is None:
        return False
    if end.producer_epoch < known.producer_epoch:
        raise PartitionFailure(ErrorCode.invalid_producer_epoch)
    if end.transaction_version >= BUMPING_CLIENT_VERSION and end.producer_epoch == known.producer_epoch:
        # an open transaction of this epoch is the next one, which it must not end (KIP-1228)
        return True
    if end.coordinator_epoch < known.coordinator_epoch:
        raise PartitionFailure(ErrorCode.transaction_coordinator_fenced)
    return False


def _command(end: TransactionEnd) -> EndProducerTransaction:
    return EndProducerTransaction(
        group_id="",
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        is_commit=end.is_commit,
        coordinator_epoch=end.coordinator_epoch,
    )
