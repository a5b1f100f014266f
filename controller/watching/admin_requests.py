"""Requests that Kafka's older tools leave in ZooKeeper: reassignments and preferred elections.

The controller handles them as the same commands that clients send. A reassignment request remains
until each of its partitions is moved or refused; finished partitions are removed from it one by
one, and the next controller reads it again. An election request is deleted after one attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from kazoo.exceptions import BadVersionError, NoNodeError
from kio.schema.errors import ErrorCode

from controller.core import commands as ask
from controller.core.decisions import Decision
from controller.core.state.cluster import Cluster
from controller.stored.cluster_reader import FoundRequest
from controller.stored.cluster_writer import ClusterWriter
from runtime.logs import get_logger
from runtime.zookeeper.nodes import DeleteNode, SetNode, TransactionStep
from wire.protocol.ids import TopicPartition
from wire.znodes.admin_znodes import (
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    decode_election,
    decode_reassignments,
    encode_reassignments,
)

_log = get_logger(__name__)

Submit = Callable[[ask.Command], Awaitable[Decision]]
Wanted = Mapping[TopicPartition, tuple[int, ...]]


class AdminRequests:
    """The requests of one tenure. `changed` is notified after every command."""

    def __init__(
        self, submit: Submit, writer: ClusterWriter, *, cluster: Callable[[], Cluster], changed: asyncio.Condition
    ) -> None:
        self._submit = submit
        self._writer = writer
        self._cluster = cluster
        self._changed = changed
        self._wanted: Wanted = {}
        self._version = -1

    async def take_election(self, found: FoundRequest) -> None:
        """Elect the requested leaders, then remove the request. Raises MalformedZnode."""
        if found is None:
            return
        payload, version = found
        partitions = tuple(TopicPartition(*named) for named in decode_election(payload))
        decision = await self._submit(ask.ElectLeaders(partitions=partitions))
        self._report_refused(PREFERRED_ELECTION, decision)
        # deleted by version, so that a request that an operator changed meanwhile is not lost
        await self._write(DeleteNode(path=PREFERRED_ELECTION, version=version))

    async def take_reassignment(self, found: FoundRequest) -> None:
        """Begin requested reassignments that are not in progress; `complete_again_and_again`
        removes finished and refused ones. Raises MalformedZnode.
        """
        if found is None:
            self._wanted = {}
            return
        payload, version = found
        wanted = {TopicPartition(*named): replicas for named, replicas in decode_reassignments(payload).items()}
        fresh = tuple(
            (partition, target) for partition, target in wanted.items() if not self._is_moving(partition, target)
        )
        # the watch also reports this controller's own changes of the request, which begin nothing
        # new
        if wanted != self._wanted and fresh:
            self._report_refused(REASSIGN_PARTITIONS, await self._submit(ask.AlterReassignments(targets=fresh)))
        self._wanted, self._version = wanted, version
        async with self._changed:
            self._changed.notify_all()

    def _is_moving(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        cluster = self._cluster()
        topic = cluster.topics.get(partition.topic)
        if topic is None or not topic.is_reassigning(partition.partition):
            return False
        return cluster.target_of(partition) == target

    def _left(self) -> Wanted:
        return {partition: target for partition, target in self._wanted.items() if self._is_moving(partition, target)}

    async def complete_again_and_again(self) -> None:
        """Remove finished partitions from the request, until the tenure ends."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._version >= 0 and self._left() != self._wanted)
            left, version = self._left(), self._version
            # -1 stops this loop: a second write under the old version would be refused
            self._wanted, self._version = left, -1  # until the watch reports the new version
            if left:
                named = {(partition.topic, partition.partition): target for partition, target in left.items()}
                await self._write(SetNode(path=REASSIGN_PARTITIONS, value=encode_reassignments(named), version=version))
            else:
                await self._write(DeleteNode(path=REASSIGN_PARTITIONS, version=version))

    async def _write(self, step: TransactionStep) -> None:
        try:
            await self._writer.write([step])
        except (NoNodeError, BadVersionError):
            # an operator deleted or replaced the request; the watch delivers the new one
            _log.info("a request in ZooKeeper was deleted or changed during its execution", path=step.path)

    @staticmethod
    def _report_refused(path: str, decision: Decision) -> None:
        for outcome in decision.partitions:
            if outcome.error not in (ErrorCode.none, ErrorCode.election_not_needed):
                _log.warning(
                    "a partition of a request in ZooKeeper is skipped",
                    path=path,
                    partition=str(outcome.partition),
                    reason=outcome.message,
                )
