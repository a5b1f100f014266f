"""Proposals of in-sync replicas whose answers are late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import partition_image
from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.partition import Partition
from broker.replication.core.partition_effects import Effects, IsrProposed
from broker.replication.isr_proposals import IsrProposals
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import BrokerInfo, PartitionState


class Settings:
    """The settings of a broker that proposals read."""

    node_id = 1
    replica_lag_ms_max = 600_000.0


class Hosted:
    """The part of a hosted partition that proposals use."""

    def __init__(self) -> None:
        self.topic, self.index, self.key, self.topic_id = "t", 0, ("t", 0), bytes(16)
        self.state = Partition(node_id=1)


class OnePartition:
    """The replicas of a broker that hosts one partition."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self.assigned = self
        self.proposals: Any = None

    def __iter__(self) -> Any:
        return iter([self._hosted])

    def find(self, topic: str, index: int) -> Hosted:
        """Returns the partition."""
        assert (topic, index) == self._hosted.key
        return self._hosted

    def apply_state(self, image: ClusterImage, hosted: Hosted, partition: PartitionImage) -> None:
        """Applies the controller's state to the partition."""
        hosted.state.change(partition, now_ms=0)

    def act(self, hosted: Hosted, effects: Effects) -> None:
        """Hands proposals to the sender."""
        if any(isinstance(effect, IsrProposed) for effect in effects):
            self.proposals.gather(hosted)


class SlowController:
    """Keeps each request until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[pb.AlterPartitionsRequest, asyncio.Future[pb.AlterPartitionsReply]]] = []

    async def alter_partitions(self, request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsReply:
        """The call of a controller's client."""
        copy = pb.AlterPartitionsRequest()
        copy.CopyFrom(request)
        self.asked.append((copy, asyncio.get_running_loop().create_future()))
        return await self.asked[-1][1]

    def answer(self, number: int, state: PartitionState, error: ErrorCode = ErrorCode.none) -> None:
        """Answer one request."""
        answer = pb.AlteredPartition(topic="t", partition=0, error_code=error, state=state)
        self.asked[number][1].set_result(pb.AlterPartitionsReply(partitions=[answer]))


def state(partition_epoch: int, *isr: int) -> PartitionState:
    return PartitionState(
        partition=0, leader=1, leader_epoch=5, partition_epoch=partition_epoch, replicas=[1, 2, 3], isr=isr
    )


async def test_a_proposal_made_while_an_older_answer_is_on_its_way_is_sent_too(clock: ManualClock) -> None:
    hosted, controller = Hosted(), SlowController()
    image = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2, 3)})
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, Cluster(image), controller, Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1, 3)), now_ms=0)
    proposals.start()
    try:
        hosted.state.record_fetch(2, 0, now_ms=0)
        proposals.consider(hosted, 2)  # type: ignore[arg-type]
        await eventually(lambda: len(controller.asked) == 1)

        hosted.state.change(partition_image(state(2, 1)), now_ms=0)  # broker 3 is gone, and the answer is not there yet
        proposals.consider(hosted, 2)  # type: ignore[arg-type]
        controller.answer(0, state(2, 1), ErrorCode.invalid_update_version)

        await eventually(lambda: len(controller.asked) == 2)
        (again,) = controller.asked[1][0].partitions
        assert (again.partition_epoch, [member.node_id for member in again.isr]) == (2, [1, 2])
        controller.answer(1, state(3, 1, 2))
        await eventually(lambda: hosted.state.isr == (1, 2) and hosted.state.proposed_isr is None)
    finally:
        await proposals.stop()


async def test_a_broker_that_is_gone_does_not_keep_the_high_watermark_waiting(clock: ManualClock) -> None:
    hosted = Hosted()
    whole = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2)})
    cluster = Cluster(whole)
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, cluster, SlowController(), Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1)), now_ms=0)
    hosted.state.record_append(10)
    hosted.state.record_fetch(2, 5, now_ms=0)
    hosted.state.record_append(20)
    hosted.state.record_fetch(2, 10, now_ms=0)
    hosted.state.record_append(30)
    proposals.consider(hosted, 2)  # type: ignore[arg-type]
    hosted.state.record_append(40)
    assert hosted.state.high_watermark < 40

    cluster.image = ClusterImage(site="a", node_id=1, brokers={1: BrokerInfo(node_id=1)})
    await proposals.on_image(whole, cluster.image)
    assert hosted.state.high_watermark == 40


async def test_a_follower_that_no_longer_joins_does_not_keep_the_high_watermark_waiting(clock: ManualClock) -> None:
    hosted = Hosted()
    cluster = Cluster(ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2)}))
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, cluster, SlowController(), Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1)), now_ms=0)
    hosted.state.record_append(10)
    hosted.state.record_fetch(2, 10, now_ms=0)
    proposals.consider(hosted, 2)  # type: ignore[arg-type]
    hosted.state.withdraw_proposal()
    hosted.state.record_append(20)
    assert hosted.state.high_watermark == 10
    hosted.state.record_fetch(2, 15, now_ms=Settings.replica_lag_ms_max + 1)
    proposals.consider(hosted, 2)  # type: ignore[arg-type]
    assert not hosted.state.joining
    assert hosted.state.high_watermark == 20


async def test_a_broker_that_the_controller_refuses_is_not_proposed_with_each_of_its_fetches(
    clock: ManualClock,
) -> None:
    hosted, controller = Hosted(), SlowController()
    image = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2)})
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, Cluster(image), controller, Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1)), now_ms=0)
    proposals.start()
    try:
        hosted.state.record_fetch(2, 0, now_ms=0)
        proposals.consider(hosted, 2)  # type: ignore[arg-type]
        await eventually(lambda: len(controller.asked) == 1)
        controller.answer(0, state(1, 1), ErrorCode.ineligible_replica)
        await eventually(lambda: hosted.state.proposed_isr is None)

        hosted.state.record_fetch(2, 0, now_ms=0)
        proposals.consider(hosted, 2)  # type: ignore[arg-type]
        assert hosted.state.proposed_isr is None
        assert not hosted.state.joining
    finally:
        await proposals.stop()


class MoodyState:
    """A partition's state, with the test's own `shrink_isr`."""

    def __init__(self, state: Partition, shrunk: Any) -> None:
        self._state = state
        self.shrink_isr = shrunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


class MoodyController(SlowController):
    """Raises these errors first, then keeps requests."""

    def __init__(self, *moods: BaseException) -> None:
        super().__init__()
        self._moods = iter(moods)

    async def alter_partitions(self, request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsReply:
        """The call of a controller's client."""
        for mood in self._moods:
            raise mood
        return await super().alter_partitions(request)


async def test_a_proposal_is_sent_again_whatever_kept_it_from_the_controller(clock: ManualClock) -> None:
    hosted, controller = Hosted(), MoodyController(ValueError("a defect"), asyncio.CancelledError())
    image = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2, 3)})
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, Cluster(image), controller, Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1, 3)), now_ms=0)
    proposals.start()
    try:
        replicas.act(hosted, hosted.state.propose_isr((1,)))
        await eventually(lambda: controller.asked)
    finally:
        await proposals.stop()


async def test_lagging_replicas_are_looked_for_again_after_a_look_that_broke(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted, controller = Hosted(), SlowController()
    image = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2, 3)})
    settings: Any = SimpleNamespace(node_id=1, replica_lag_ms_max=10.0)
    replicas = OnePartition(hosted)
    parts: tuple[Any, ...] = (replicas, Cluster(image), controller, settings, clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    hosted.state.change(partition_image(state(1, 1, 3)), now_ms=0)
    moods = iter([KeyError("a defect")])

    shrink_isr = hosted.state.shrink_isr

    def shrunk(**times: float) -> Effects:
        for mood in moods:
            raise mood
        return shrink_isr(now_ms=times["now_ms"] + 1_000, lag_ms_max=times["lag_ms_max"])

    monkeypatch.setattr(hosted, "state", MoodyState(hosted.state, shrunk))
    proposals.start()
    try:
        await eventually(lambda: controller.asked)
    finally:
        await proposals.stop()


class WithBadDisk(OnePartition):
    """Replicas of which one fails to take over a leadership."""

    def __init__(self, sound: Hosted, rotten: Hosted) -> None:
        super().__init__(sound)
        self._all = {hosted.key: hosted for hosted in (rotten, sound)}
        self._rotten = rotten
        self.failures: list[StorageError] = []

    def find(self, topic: str, index: int) -> Hosted:
        """Returns the partition."""
        return self._all[topic, index]

    def apply_state(self, image: ClusterImage, hosted: Hosted, partition: PartitionImage) -> None:
        """Applies the controller's state, unless the disk fails."""
        if hosted is self._rotten:
            raise StorageError("writing", "t-1", "a bad disk")
        super().apply_state(image, hosted, partition)

    def storage_failed(self, error: StorageError) -> None:
        """Records the failure of a write."""
        self.failures.append(error)


async def test_a_partition_whose_disk_is_bad_keeps_the_answer_from_no_other(clock: ManualClock) -> None:
    sound, rotten, controller = Hosted(), Hosted(), SlowController()
    rotten.index, rotten.key = 1, ("t", 1)
    image = ClusterImage(site="a", node_id=1, brokers={node: BrokerInfo(node_id=node) for node in (1, 2, 3)})
    replicas = WithBadDisk(sound, rotten)
    parts: tuple[Any, ...] = (replicas, Cluster(image), controller, Settings(), clock)
    proposals = replicas.proposals = IsrProposals(*parts, broker_epoch=lambda: 7)
    for hosted in (rotten, sound):
        hosted.state.change(partition_image(state(1, 1, 3)), now_ms=0)
    proposals.start()
    try:
        for hosted in (rotten, sound):
            replicas.act(hosted, hosted.state.propose_isr((1,)))
        await eventually(lambda: controller.asked)
        answers = [pb.AlteredPartition(topic="t", partition=index, state=state(2, 1)) for index in (1, 0)]
        controller.asked[0][1].set_result(pb.AlterPartitionsReply(partitions=answers))
        await eventually(lambda: sound.state.isr == (1,))
        assert replicas.failures
    finally:
        await proposals.stop()
