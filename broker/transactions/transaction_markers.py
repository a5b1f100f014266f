"""Writes transaction markers into partitions that this broker leads, once, in order with everything
else there.

A marker of an older producer epoch or coordinator is refused. Where each transaction has its own
epoch, a marker that the log has already is also refused, but only when every in-sync replica has
that marker, because the caller then treats the partition as done. Partitions of
`__consumer_offsets` go through the group coordinator, whose memory must see the marker where the
log has it. Under a link's fence the markers of committed transactions still pass: their producers
got the answer before, and the failover waits for them. Called by the WriteTxnMarkers handler, by
`marker_sender.py` for what is local, and by `hanging_transactions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

from kio.schema.errors import ErrorCode

from broker.coordination.internal_log import AwaitedCommit, OwnAppend
from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import EndProducerTransaction
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from broker.transactions.core.transaction_states import BUMPING_CLIENT_VERSION
from broker.transactions.marker_groups import COMMIT_TIMEOUT_MS, MarkerGroups, MarkerWrite, TransactionEnd
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import encode_marker
from wire.protocol.ids import ACKS_ALL, TopicPartition


class TransactionMarkers:
    """Writes the markers of this broker's partitions."""

    def __init__(
        self, image: Callable[[], ClusterImage], replicas: Replicas, groups: GroupCoordinator, clock: Clock
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._unwritten: list[MarkerWrite] = []

    async def write(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], *, is_promoting: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The outcome by partition; none means that every in-sync replica has the marker.

        `is_promoting`: a failover ends the transaction before this site takes writes; the caller
        has checked that it may.
        """
        loop = asyncio.get_running_loop()
        write = MarkerWrite(end, partitions, is_promoting, loop.create_future())
        if not self._unwritten:
            # After all writes of this turn of the loop, so that their markers share appends.
            loop.call_soon(self._append_unwritten)
        self._unwritten.append(write)
        await write.appended
        outcomes, waits = write.outcomes, write.waits
        # appended to all before the wait: one slow partition must not delay the others' markers
        ended = await asyncio.gather(*(wait() for wait in waits.values()), return_exceptions=True) if waits else ()
        for partition, found in zip(waits, ended, strict=True):
            if isinstance(found, PartitionFailure | CoordinatorRefusal):
                outcomes[partition] = found.code
            elif isinstance(found, BaseException):
                # A defect must not count as an outcome, because the sender would consider the
                # partition done.
                raise found
        return outcomes

    def _append_unwritten(self) -> None:
        """Append the markers that were requested in this turn of the event loop."""
        unwritten, self._unwritten = self._unwritten, []
        image, groups = self._image(), MarkerGroups(self._replicas)
        for write in unwritten:
            # cancelled: its coordinator has moved away
            if write.appended.done():
                continue
            marker = self._encoded(write.end)
            try:
                for partition in write.partitions:
                    self._begin(image, partition, write, marker, groups)
            except Exception as defect:
                write.appended.set_exception(defect)
        groups.append_all()
        for write in unwritten:
            if not write.appended.done():
                write.appended.set_result(None)

    def _begin(
        self, image: ClusterImage, partition: TopicPartition, write: MarkerWrite, marker: bytes, groups: MarkerGroups
    ) -> None:
        """Note the outcome of one partition: a reason to wait, or a marker to append."""
        end = write.end
        try:
            hosted = self._replicas.get(image, partition.topic, partition.partition)
            passes_fence = write.is_promoting or self._passes_fence(end, partition.topic)
            hosted.check_writable(ACKS_ALL, passes_fence=passes_fence)
            # the log must show the marker of the same producer's transaction before this one
            if groups.has(hosted.key, end.producer_id):
                groups.append(hosted.key)
            # After the check of leadership, because only a leader's log shows that a marker is
            # final.
            was_here = _was_here(hosted, end)
        except PartitionFailure as failure:
            write.outcomes[partition] = failure.code
            return
        if was_here:
            write.waits[partition] = partial(self._settled, hosted)
        elif partition.topic == OFFSETS_TOPIC:
            write.outcomes[partition] = ErrorCode.none
            write.waits[partition] = partial(self._groups.end_transaction, partition.partition, _command(end))
        else:
            groups.add(write, partition, hosted, marker, passes_fence=passes_fence)

    async def _settled(self, hosted: HostedPartition) -> None:
        """Refuse the marker that was here before, once what the log has is committed."""
        commit = AwaitedCommit(self._replicas, hosted, hosted.log.log_end_offset - 1)
        if not commit.is_committed:
            await commit.committed(COMMIT_TIMEOUT_MS)
        raise PartitionFailure(ErrorCode.invalid_producer_epoch)

    def _passes_fence(self, end: TransactionEnd, topic: str) -> bool:
        # An abort need not pass the fence, because a promotion itself aborts open transactions.
        if not end.is_commit:
            return False
        image = self._image()
        return image.role_in(image.link_of(topic)) is LinkRole.FENCED

    async def append(self, hosted: HostedPartition, end: TransactionEnd) -> None:
        """Append the marker to an ordinary partition and wait until it is committed.
        PartitionFailure.
        """
        passes_fence = self._passes_fence(end, hosted.topic)
        # before the append: a write that was verified earlier must not slip in behind the marker
        hosted.guards.withdraw(end.producer_id)
        append = OwnAppend(self._replicas, hosted, self._encoded(end), passes_fence=passes_fence)
        if not append.is_committed:
            await append.committed(COMMIT_TIMEOUT_MS)

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
