"""Proposals of in-sync replicas whose answers come late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker.core.cluster_image import ClusterImage, PartitionImage
from broker.core.partition import Partition
from broker.isr_proposals import IsrProposals
from broker.services import Cluster
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control import cluster_pb2
from wire.control import controller_pb2 as pb

REPLICAS = (1, 2, 3)


def state_image(isr: tuple[int, ...], *, partition_epoch: int) -> PartitionImage:
    return PartitionImage(
        index=0, leader=1, leader_epoch=0, partition_epoch=partition_epoch, replicas=REPLICAS, isr=isr
    )


class SlowController:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[pb.AlterPartitionsRequest] = []
        self.answers: asyncio.Queue[pb.AlterPartitionsReply] = asyncio.Queue()

    async def alter_partitions(self, request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsReply:
        self.asked.append(request)
        return await self.answers.get()


class OneReplica:
    """The only partition of the broker."""

    def __init__(self, hosted: Any) -> None:
        self.hosted = hosted

    def __iter__(self) -> Any:
        return iter((self.hosted,))

    def find(self, _topic: str, _index: int) -> Any:
        return self.hosted


async def test_a_proposal_made_while_an_older_one_is_under_way_is_sent_too() -> None:
    state = Partition(node_id=1)
    state.change(state_image((1, 2, 3), partition_epoch=0), now_ms=0)
    hosted: Any = SimpleNamespace(topic="t", topic_id=bytes(16), index=0, key=("t", 0), state=state)
    image = ClusterImage(
        site="a", node_id=1, brokers={node: cluster_pb2.BrokerInfo(node_id=node, broker_epoch=9) for node in REPLICAS}
    )
    controller: Any = SlowController()
    settings: Any = SimpleNamespace(node_id=1, replica_lag_ms_max=1_000_000)
    replicas: Any = OneReplica(hosted)
    proposals = IsrProposals(replicas, Cluster(image), controller, settings, ManualClock(), broker_epoch=lambda: 9)
    proposals.start()
    try:
        state.change(state_image((1,), partition_epoch=1), now_ms=0)
        state.record_fetch(2, 0, now_ms=0, broker_epoch=9)
        proposals.consider(hosted, 2)
        await eventually(lambda: len(controller.asked) == 1)
        state.change(state_image((1, 3), partition_epoch=2), now_ms=0)  # an image is quicker than the answer
        proposals.consider(hosted, 2)
        refused = pb.AlteredPartition(topic="t", partition=0, error_code=95)
        controller.answers.put_nowait(pb.AlterPartitionsReply(partitions=[refused]))
        await eventually(lambda: len(controller.asked) == 2)
        assert [member.node_id for member in controller.asked[1].partitions[0].isr] == [1, 2, 3]
    finally:
        await proposals.stop()
