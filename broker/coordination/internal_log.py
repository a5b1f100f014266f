"""An internal topic for its coordinator: it appends and waits until the records are safe, reads the
whole log, and knows whether this broker leads.

Implements the coordinator's `InternalLog` over the replicas. Reading yields to the event loop
between pieces, so that loading a large partition does not stop the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Hashable
from typing import Final

from kio.schema.errors import ErrorCode

from broker.log.errors import StorageError
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.replicas import Replicas
from wire.protocol.ids import ACKS_ALL, NO_EPOCH

READ_BYTES_MAX: Final = 1024 * 1024


class InternalLog:
    """One internal topic of this broker."""

    def __init__(self, topic: str, replicas: Replicas, *, commit_timeout_ms: float) -> None:
        self._topic = topic
        self._replicas = replicas
        self._commit_timeout_ms = commit_timeout_ms

    def _led(self, partition: int) -> HostedPartition:
        hosted = self._replicas.find(self._topic, partition)
        if hosted is None or not hosted.state.is_leader:
            raise PartitionFailure(ErrorCode.not_leader_or_follower)
        return hosted

    def leader_epoch(self, partition: int) -> int | None:
        """The leader epoch under which this broker leads the partition, None when it does not."""
        hosted = self._replicas.find(self._topic, partition)
        return hosted.state.leader_epoch if hosted is not None and hosted.state.is_leader else None

    def producer_epoch(self, partition: int, producer_id: int) -> int:
        """The newest epoch of the producer in the partition; NO_EPOCH if it has none there."""
        hosted = self._replicas.find(self._topic, partition)
        known = None if hosted is None else hosted.log.producers.get(producer_id)
        return NO_EPOCH if known is None else known.producer_epoch

    def append(self, partition: int, records: bytes) -> Awaitable[None] | None:
        """Append; return an object to wait for until every in-sync replica has the records, None if
        all have them already. PartitionFailure, from either.
        """
        append = OwnAppend(self._replicas, self._led(partition), records)
        return None if append.is_committed else append.committed(self._commit_timeout_ms)

    async def read_all(self, partition: int) -> AsyncIterator[bytes]:
        """Whole batches from the log's start to its current end, in pieces. PartitionFailure.

        To the log end and not to the high watermark: a new leader has every committed record, but
        learns the high watermark only from its followers' fetches.
        """
        hosted = self._led(partition)
        offset, end = hosted.log.log_start_offset, hosted.state.log_end_offset
        while offset < end:
            try:
                with self._replicas.read(
                    hosted, offset, max_bytes=READ_BYTES_MAX, end_offset=end, has_minimum_one_batch=True
                ) as piece:
                    content, next_offset = piece.read_bytes(), piece.next_offset
            except StorageError as error:
                raise failure_of(error) from error
            if not content:
                return
            yield content
            offset = next_offset
            # loading a large partition must not block the event loop
            await asyncio.sleep(0)


class AwaitedCommit:
    """The log of a partition that this broker leads, up to an offset, until every in-sync replica
    has it.
    """

    def __init__(self, replicas: Replicas, hosted: HostedPartition, last_offset: int) -> None:
        self._replicas = replicas
        self._hosted = hosted
        self.last_offset = last_offset
        # the same leadership must hold until the commit: after a break the record may be truncated
        self._led_since_epoch = hosted.state.led_since_epoch
        self._done: asyncio.Future[None] | None = None

    @property
    def is_committed(self) -> bool:
        """True if the records were already committed when this object was created."""
        return self._hosted.state.high_watermark > self.last_offset and not self._hosted.log.needs_flush

    async def committed(self, timeout_ms: float) -> None:
        """Return when the records are committed. Raises PartitionFailure if the disk fails, the
        leadership is lost or the time is over.
        """
        # the flush comes first: a commit that a loss of power could undo must not be answered
        if self._hosted.log.needs_flush:
            try:
                await self._hosted.log.flush()
            except StorageError as error:
                self._replicas.storage_failed(error)
                raise failure_of(error) from error
        self._done = asyncio.get_running_loop().create_future()
        # during the flush, the record may have been committed, or lost with the leadership
        if self.changed(self._hosted.key, 0):
            self.complete()
            return await self._done
        purgatory = self._replicas.purgatory
        entry = purgatory.wait(self, DelayedOperation.PRODUCE, keys=[self._hosted.key], timeout_ms=timeout_ms)
        try:
            await self._done
        finally:
            purgatory.forget(entry)

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """True if the wait is over."""
        return not self._is_led() or self._hosted.state.high_watermark > self.last_offset

    def _is_led(self) -> bool:
        """Return True if this broker has led the partition without a break since the append.
        Otherwise the log may have been truncated, and other records put in their place.
        """
        state = self._hosted.state
        return state.is_leader and state.led_since_epoch == self._led_since_epoch

    def complete(self) -> None:
        """Settle the future."""
        if self._done is None or self._done.done():
            return
        if not self._is_led():
            self._done.set_exception(PartitionFailure(ErrorCode.not_leader_or_follower))
        elif self._hosted.state.high_watermark <= self.last_offset:
            self._done.set_exception(PartitionFailure(ErrorCode.request_timed_out))
        else:
            self._done.set_result(None)


class OwnAppend(AwaitedCommit):
    """One append that the broker itself makes to a partition that it leads, until every in-sync
    replica has the records. The constructor raises PartitionFailure.
    """

    def __init__(
        self, replicas: Replicas, hosted: HostedPartition, records: bytes, *, passes_fence: bool = False
    ) -> None:
        info = replicas.append(hosted, records, acks=ACKS_ALL, is_from_client=False, passes_fence=passes_fence)
        super().__init__(replicas, hosted, info.last_offset)
