"""A broker that was stopped for a while asks ZooKeeper whether its registration still exists. It
decides nothing until it has the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kazoo.exceptions import ConnectionLoss
from kio.schema.errors import ErrorCode

from broker.coordination.registration_check import RegistrationCheck
from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, PartitionState, TopicInfo

SESSION_MS = 4_000


class Registration:
    """ZooKeeper, with the answers that the test gives it."""

    def __init__(self) -> None:
        self.broker_epoch = 7
        self.answers: asyncio.Queue[bool | Exception] = asyncio.Queue()
        self.asked_count = 0

    async def is_registered(self) -> bool:
        self.asked_count += 1
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Scene:
    """A broker of epoch 7 whose image is up to date."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.registration = Registration()
        self.cluster = Cluster(ClusterImage(site="a", node_id=1))
        self.take_image(7)
        self.standing = RegistrationCheck(
            self.registration, self.cluster, clock, node_id=1, session_timeout_ms=SESSION_MS
        )
        self.standing.start()

    def take_image(self, broker_epoch: int) -> None:
        batch = ControlBatch(is_full=True, brokers=[BrokerInfo(node_id=1, broker_epoch=broker_epoch)])
        self.cluster.replace(apply_batch(ClusterImage(site="a", node_id=1), batch))

    def stand_still(self, ms: float = SESSION_MS) -> None:
        self.clock.advance(ms)


@pytest.fixture
async def scene(clock: ManualClock) -> AsyncIterator[Scene]:
    scene = Scene(clock)
    yield scene
    await scene.standing.stop()


async def test_a_broker_that_runs_sends_no_check(scene: Scene) -> None:
    for _ in range(20):
        scene.stand_still(SESSION_MS / 2)
        assert scene.standing.holds()
    assert not scene.registration.asked_count


async def test_the_first_request_after_a_stop_finds_it_in_doubt_until_the_registration_is_seen(scene: Scene) -> None:
    scene.stand_still()
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(ConnectionLoss())
    scene.registration.answers.put_nowait(True)
    await eventually(scene.standing.holds)
    assert scene.registration.asked_count == 2


async def test_a_stop_is_noticed_without_any_request(scene: Scene) -> None:
    scene.stand_still()
    await eventually(lambda: scene.registration.asked_count)
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(True)
    await eventually(scene.standing.holds)


async def test_a_broker_without_its_registration_waits_for_the_next_one_and_for_its_image(
    scene: Scene,
) -> None:
    scene.stand_still()
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(False)
    await eventually(lambda: scene.registration.asked_count == 2)
    scene.registration.broker_epoch = 9
    scene.registration.answers.put_nowait(True)
    await eventually(lambda: scene.registration.asked_count == 3)
    assert not scene.standing.holds()
    scene.take_image(9)
    scene.registration.answers.put_nowait(True)
    await eventually(scene.standing.holds)


async def test_a_question_that_breaks_leaves_the_broker_in_doubt_until_another_one_is_answered(scene: Scene) -> None:
    scene.stand_still()
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(ValueError("a defect"))
    await eventually(lambda: scene.registration.asked_count == 2)
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(True)
    await eventually(scene.standing.holds)


async def test_an_answer_from_before_another_stop_does_not_count(scene: Scene) -> None:
    scene.stand_still()
    assert not scene.standing.holds()
    await eventually(lambda: scene.registration.asked_count == 1)
    scene.stand_still()
    scene.registration.answers.put_nowait(True)
    await eventually(lambda: scene.registration.asked_count == 2)
    assert not scene.standing.holds()
    scene.registration.answers.put_nowait(True)
    await eventually(scene.standing.holds)


async def test_a_coordinator_in_doubt_sends_its_clients_to_look_for_another(clock: ManualClock) -> None:
    log, is_sure = MemoryLog(), True
    log.epochs = {0: 1}
    offsets = TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=[PartitionState(partition=0, leader=1)])
    image = apply_batch(ClusterImage(site="a", node_id=1), ControlBatch(is_full=True, topics=[offsets]))
    groups = GroupCoordinator(GroupLimits(), log, ImageRouting(lambda: image), clock, may_answer=lambda: is_sure)
    groups.refresh_leadership()
    await eventually(lambda: not groups.is_loading)
    assert groups.describe("g", is_own_tool=False) is None
    is_sure = False
    with pytest.raises(CoordinatorRefusal) as refusal:
        groups.describe("g", is_own_tool=False)
    assert refusal.value.code is ErrorCode.not_coordinator
    await groups.stop()
