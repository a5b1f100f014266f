"""A group coordinator over an in-memory log, with the image of its site."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import (
    CommitOffsets,
    CommittedOffset,
    JoinGroup,
    PartitionsReply,
    SyncGroup,
)
from broker.groups.core.group_states import AssignmentProtocol
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from wire.batches.consumer_protocol import Subscription, encode_subscription
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition

PARTITIONS = 4


GROUP = "billing"


T0 = TopicPartition("t", 0)


LIMITS = GroupLimits(initial_rebalance_delay_ms=0, offsets_retention_ms=1000)


class Site:
    """A coordinator of site a that leads all partitions, with its log and image."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.log = MemoryLog()
        self.log.epochs = dict.fromkeys(range(PARTITIONS), 1)
        partitions = [PartitionState(partition=index, leader=1) for index in range(PARTITIONS)]
        batch = ControlBatch(
            is_full=True,
            brokers=[BrokerInfo(node_id=1)],
            topics=[
                TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=partitions),
                TopicInfo(name="t", topic_id=b"t" * 16, partitions=partitions[:1]),
            ],
        )
        self.image = apply_batch(ClusterImage(site="a", node_id=1), batch)
        self.coordinator = self.made()

    def made(self) -> GroupCoordinator:
        return GroupCoordinator(LIMITS, self.log, ImageRouting(lambda: self.image), self.clock)

    async def loaded(self) -> None:
        self.coordinator.refresh_leadership()
        await eventually(lambda: not self.coordinator.is_loading)

    async def change(self, batch: ControlBatch) -> None:
        before, self.image = self.image, apply_batch(self.image, batch)
        await self.coordinator.on_image(before, self.image)

    async def link(self, record: LinkRecord) -> None:
        await self.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[record]))

    async def commit(self, offset: int, **values: Any) -> ErrorCode:
        command = CommitOffsets(group_id=GROUP, offsets={T0: CommittedOffset(offset, 3, "")}, **values)
        reply = await self.coordinator.commit(command)
        assert isinstance(reply, PartitionsReply)
        return outcome(reply)

    def committed(self, *, is_own_tool: bool = True) -> int | None:
        found = self.coordinator.offsets_of(GROUP, is_own_tool=is_own_tool).get(T0)
        return None if found is None else found.offset

    def committed_or_none(self) -> int | None:
        try:
            return self.committed()
        except CoordinatorRefusal:
            return None

    def join(self, member_id: str = "", *, topics: tuple[str, ...] = ("t",)) -> asyncio.Task[Any]:
        command = JoinGroup(
            group_id=GROUP,
            member_id=member_id,
            fresh_member_id="m-1",
            group_instance_id=None,
            client_id="m",
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(AssignmentProtocol("range", encode_subscription(Subscription(1, topics, {}))),),
            requires_known_member=False,
            may_skip_assignment=True,
        )
        return asyncio.ensure_future(self.coordinator.join(command))

    def sync(self, generation: int = 1) -> asyncio.Task[Any]:
        command = SyncGroup(
            group_id=GROUP,
            member_id="m-1",
            group_instance_id=None,
            generation=generation,
            protocol_type=None,
            protocol=None,
            assignments={"m-1": b"all"},
        )
        return asyncio.ensure_future(self.coordinator.sync(command))

    async def with_member(self, *, topics: tuple[str, ...] = ("t",)) -> None:
        await self.join(topics=topics)
        assert (await self.sync()).assignment == b"all"


def outcome(reply: PartitionsReply) -> ErrorCode:
    return reply.error if reply.error is not ErrorCode.none else reply.errors[T0]


async def refusal(work: Any) -> ErrorCode:
    with pytest.raises(CoordinatorRefusal) as refused:
        await work
    return refused.value.code
