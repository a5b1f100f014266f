"""Appends the markers of one turn of the event loop together: one append for each partition.

Most of an append's cost is the same for one batch and for several, and producers whose transactions
end at the same time share partitions. An append is all or nothing, so markers that are refused
together are appended one by one: one that is out of date must not delay the others.

Caller: `broker/transactions/transaction_markers.py`, which decides what is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.coordination.internal_log import AwaitedCommit, OwnAppend
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from wire.protocol.ids import PartitionKey, TopicPartition

COMMIT_TIMEOUT_MS: Final = 10_000
"""A coordinator sends the marker again after it."""


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


class MarkerWrite(Struct, eq=False):
    """The markers of one transaction: `appended` is done when each partition has an outcome or
    something to wait for.
    """

    end: TransactionEnd
    partitions: Collection[TopicPartition]
    is_promoting: bool
    appended: asyncio.Future[None]
    outcomes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    waits: dict[TopicPartition, Callable[[], Awaitable[object]]] = field(default_factory=dict)


class _Member(NamedTuple):
    write: MarkerWrite
    at: TopicPartition
    marker: bytes


class _Group(Struct):
    hosted: HostedPartition
    passes_fence: bool
    members: dict[int, _Member] = field(default_factory=dict)
    """By the id of the producer."""


class MarkerGroups:
    """The markers that are about to be appended."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._groups: dict[PartitionKey, _Group] = {}

    def add(
        self, write: MarkerWrite, at: TopicPartition, hosted: HostedPartition, marker: bytes, *, passes_fence: bool
    ) -> None:
        """Append this marker with the others of its partition."""
        group = self._groups.get(hosted.key)
        if group is not None and group.passes_fence is not passes_fence:
            self.append(hosted.key)
            group = None
        if group is None:
            group = self._groups[hosted.key] = _Group(hosted, passes_fence)
        group.members[write.end.producer_id] = _Member(write, at, marker)

    def has(self, key: PartitionKey, producer_id: int) -> bool:
        """True while a marker of the producer waits to be appended to the partition."""
        group = self._groups.get(key)
        return group is not None and producer_id in group.members

    def append(self, key: PartitionKey) -> None:
        """Append the markers that wait for the partition."""
        group = self._groups.pop(key)
        members = tuple(group.members.values())
        try:
            self._append(group, members)
        except PartitionFailure as failure:
            if len(members) == 1:
                members[0].write.outcomes[members[0].at] = failure.code
            else:
                self._append_one_by_one(group, members)
        except Exception as defect:
            for member in members:
                _fail(member.write, defect)

    def append_all(self) -> None:
        """Append everything."""
        for key in tuple(self._groups):
            self.append(key)

    def _append_one_by_one(self, group: _Group, members: tuple[_Member, ...]) -> None:
        for member in members:
            try:
                self._append(group, (member,))
            except PartitionFailure as failure:
                member.write.outcomes[member.at] = failure.code
            except Exception as defect:
                _fail(member.write, defect)

    def _append(self, group: _Group, members: tuple[_Member, ...]) -> None:
        hosted = group.hosted
        for member in members:
            # first: a write that was verified earlier must not slip in behind the marker
            hosted.guards.withdraw(member.write.end.producer_id)
        records = members[0].marker if len(members) == 1 else b"".join(member.marker for member in members)
        append = OwnAppend(self._replicas, hosted, records, passes_fence=group.passes_fence)
        is_committed = append.is_committed
        for member in members:
            member.write.outcomes[member.at] = ErrorCode.none
            # with one replica in sync, the append itself commits the marker
            if not is_committed:
                commit = AwaitedCommit(self._replicas, hosted, append.last_offset)
                member.write.waits[member.at] = partial(commit.committed, COMMIT_TIMEOUT_MS)


def _fail(write: MarkerWrite, defect: Exception) -> None:
    if not write.appended.done():
        write.appended.set_exception(defect)
