"""Controllers of a site: exactly one is active, each tenure has a higher epoch, and a controller
with an older epoch writes nothing.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import grpc
import pytest
from kio.schema.errors import ErrorCode

from controller.brokers.images import PendingChanges
from runtime.grpc_server import open_channel
from runtime.supervision import deaths
from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.processes.zookeeper import expire_session
from tests.support.sites.controller_site import CandidateProcess, ControllerSite, create_topic, start_client
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.clients import ACTIVE_CONTROLLER_KEY
from wire.control.controller_pb2_grpc import ControllerStub
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import encode_controller_epoch
from wire.znodes.topic_znodes import decode_partition_state

pytestmark = pytest.mark.integration


async def test_when_the_active_controller_leaves_exactly_one_other_takes_over_with_a_higher_epoch(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidates = [
        await stack.enter_async_context(CandidateProcess(zookeeper_connect, node_id)) for node_id in (1, 2, 3)
    ]
    client = start_client(stack, *candidates)
    active = await eventually(lambda: next((found for found in candidates if found.is_active), None))
    await create_topic(client, "before")
    epoch = active.candidate.controller_epoch
    await active.stop()
    others = [found for found in candidates if found is not active]
    await eventually(lambda: sum(found.is_active for found in others) == 1)
    successor = next(found for found in others if found.is_active)
    assert successor.candidate.controller_epoch == epoch + 1
    assert sum(found.metric("activecontrollercount") for found in candidates) == 1
    assert (await create_topic(client, "after")).error_code == ErrorCode.none
    assert broker.batches[-1].controller_epoch == epoch + 1
    assert broker.leader_of("before") == 1


async def test_a_controller_whose_epoch_was_passed_writes_nothing_and_steps_down(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches)
    epoch = candidate.candidate.controller_epoch
    zombie = candidate.candidate.active
    assert zombie is not None
    await zookeeper.set(znodes.CONTROLLER_EPOCH, encode_controller_epoch(epoch + 7))
    client = start_client(stack, candidate)
    assert (await create_topic(client, "t")).error_code == ErrorCode.none
    assert candidate.candidate.active is not zombie
    state = decode_partition_state("t", 0, (await zookeeper.get(znodes.partition_state_path("t", 0)))[0])
    assert state.controller_epoch == epoch + 8 == candidate.candidate.controller_epoch


async def test_deleting_the_controller_node_by_hand_leads_to_a_new_election(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: candidate.is_active)
    epoch = candidate.candidate.controller_epoch
    await zookeeper.delete(znodes.CONTROLLER)
    await eventually(lambda: candidate.is_active and candidate.candidate.controller_epoch == epoch + 1)


async def test_a_candidate_that_stands_by_names_the_active_one(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: first.is_active)
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    channel = open_channel(second.address)
    stack.push_async_callback(channel.close, None)
    stub = ControllerStub(channel)

    async def asked() -> bool:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.CreateTopics(pb.CreateTopicsRequest())
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        return dict(raised.value.trailing_metadata()).get(ACTIVE_CONTROLLER_KEY) == first.address

    await eventually(asked)
    described = await start_client(stack, second, first).describe_controller()
    assert (described.controller_id, described.is_active) == (1, True)


async def test_a_lost_session_ends_the_tenure_and_another_begins(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches)
    epoch = candidate.candidate.controller_epoch
    await expire_session(candidate.candidate._zookeeper, zookeeper_connect)
    await eventually(lambda: candidate.is_active and candidate.candidate.controller_epoch > epoch)
    client = start_client(stack, candidate)
    assert (await create_topic(client, "t")).error_code == ErrorCode.none


async def test_a_defect_on_the_way_to_a_broker_ends_the_tenure(
    site: ControllerSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, candidate, client = site
    epoch = candidate.candidate.controller_epoch
    healthy = PendingChanges.batch

    def broken(*_: object, **__: object) -> ControlBatch:
        monkeypatch.setattr(PendingChanges, "batch", healthy)
        raise LookupError("made by the test")

    monkeypatch.setattr(PendingChanges, "batch", broken)
    await create_topic(client, "t")
    await eventually(lambda: candidate.candidate.controller_epoch > epoch and broker.leader_of("t") == 1)


async def test_a_candidate_takes_part_again_once_the_unreadable_epoch_is_repaired(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    await zookeeper.create(znodes.CONTROLLER_EPOCH, b"not a number")
    before = deaths().get("controller candidate", 0)
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: deaths().get("controller candidate", 0) > before)
    assert not candidate.is_active
    await zookeeper.set(znodes.CONTROLLER_EPOCH, encode_controller_epoch(7))
    await eventually(lambda: candidate.is_active)
    assert candidate.candidate.controller_epoch == 8
