"""A controller against a real ZooKeeper and brokers that record the batches that they receive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
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
from tests.support.sites.controller_site import CandidateProcess
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.clients import ACTIVE_CONTROLLER_KEY, ControllerClient
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.controller_pb2_grpc import ControllerStub
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import encode_controller_epoch
from wire.znodes.config_znodes import encode_config_change, encode_topic_config
from wire.znodes.link_znodes import encode_link
from wire.znodes.topic_znodes import TopicAssignment, decode_partition_state, decode_topic, encode_topic

pytestmark = pytest.mark.integration


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def zookeeper(zookeeper_connect: str) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(zookeeper_connect)
    await client.start()
    yield client
    await client.stop()


async def start_client(stack: AsyncExitStack, *candidates: CandidateProcess) -> ControllerClient:
    client = ControllerClient(lambda: [candidate.address for candidate in candidates])
    stack.push_async_callback(client.close)
    return client


async def create(
    client: ControllerClient, name: str, partitions: int = 1, factor: int = 1, **configs: str
) -> pb.TopicResult:
    topic = pb.NewTopic(
        name=name,
        partition_count=partitions,
        replication_factor=factor,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    reply = await client.create_topics(pb.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    return reply.results[0]


async def test_a_created_topic_is_stored_as_kafka_stores_it_and_known_to_brokers_when_the_reply_comes(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1001))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1001))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches and broker.batches[0].is_full)
    result = await create(client, "orders", 3, retention_ms="1000")
    assert result.error_code == ErrorCode.none
    assert (result.partition_count, result.replication_factor) == (3, 1)
    assert [broker.leader_of("orders", index) for index in range(3)] == [1001] * 3
    assert broker.topic_configs["orders"] == {"retention.ms": "1000"}
    stored = decode_topic("orders", (await zookeeper.get(znodes.topic_path("orders")))[0])
    assert stored.topic_id == result.topic_id
    state, stat = await zookeeper.get(znodes.partition_state_path("orders", 2))
    assert decode_partition_state("orders", 2, state).leader == 1001
    assert stat.version == broker.partitions["orders", 2].partition_epoch
    again = await create(client, "orders")
    assert again.error_code == ErrorCode.topic_already_exists
    assert candidate.metric("globalpartitioncount") == 3


async def test_topics_grow_change_configs_and_are_deleted(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches)
    created = await create(client, "t")
    grown = await client.create_partitions(
        pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="t", total_count=4)])
    )
    assert grown.results[0].error_code == ErrorCode.none
    assert {key for key in broker.partitions if key[0] == "t"} == {("t", index) for index in range(4)}
    change = pb.TopicConfigChange(name="t", set={"cleanup.policy": "compact"})
    await client.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=[change]))
    assert broker.topic_configs["t"] == {"cleanup.policy": "compact"}
    removal = pb.TopicConfigChange(name="t", remove=["cleanup.policy"])
    await client.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=[removal]))
    assert broker.topic_configs["t"] == {}
    deleted = await client.delete_topics(pb.DeleteTopicsRequest(topic_ids=[created.topic_id]))
    assert [(result.name, result.error_code) for result in deleted.results] == [("t", ErrorCode.none)]
    assert not broker.partitions
    for path in (znodes.topic_path("t"), znodes.topic_config_path("t"), znodes.delete_topic_path("t")):
        assert await zookeeper.exists(path) is None
    assert (await create(client, "t")).error_code == ErrorCode.none


async def test_unclean_elections_may_be_allowed_for_a_topic_and_for_all_topics(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    late = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    last = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 2))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 3))
    client = await start_client(stack, candidate)
    await eventually(lambda: late.live == last.live == [1, 2])
    for topic in ("t", "u"):
        await create(client, topic, factor=2)
    await late.unregister()
    await eventually(lambda: last.live == [2] and last.leader_of("t", 0) == last.leader_of("u", 0) == 2)
    late.batches.clear()
    late.partitions.clear()
    await late.register()
    await eventually(lambda: late.live == [1, 2] and late.leader_of("u", 0) == 2)
    await last.unregister()
    await eventually(lambda: late.leader_of("t", 0) == late.leader_of("u", 0) == -1)

    change = pb.TopicConfigChange(name="t", set={"unclean.leader.election.enable": "true"})
    await client.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=[change]))
    assert (late.leader_of("t", 0), late.leader_of("u", 0)) == (1, -1)

    allowed = encode_topic_config({"unclean.leader.election.enable": "true"})
    await zookeeper.create(znodes.broker_config_path(""), allowed, make_path=True)
    await eventually(lambda: late.leader_of("u", 0) == 1)
    assert candidate.metric("uncleanleaderelections_total", bean="controllerstats") == 2


async def test_losing_the_only_replica_takes_a_partition_offline_and_its_return_brings_it_back_with_a_new_epoch(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    staying = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    going = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 2))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: staying.live == [1, 2])
    await create(client, "t", 2)
    lost = next(index for index in range(2) if staying.leader_of("t", index) == 2)
    await going.unregister()
    await eventually(lambda: staying.leader_of("t", lost) == -1 and staying.live == [1])
    assert candidate.metric("offlinepartitionscount") == 1
    epoch = staying.partitions["t", lost].leader_epoch
    going.batches.clear()
    going.partitions.clear()
    await going.register()
    await eventually(lambda: staying.leader_of("t", lost) == 2 and going.leader_of("t", lost) == 2)
    assert going.batches[0].is_full
    assert going.partitions["t", lost].leader_epoch > epoch
    assert candidate.metric("offlinepartitionscount") == 0


async def test_when_the_active_controller_leaves_exactly_one_other_takes_over_with_a_higher_epoch(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidates = [
        await stack.enter_async_context(CandidateProcess(zookeeper_connect, node_id)) for node_id in (1, 2, 3)
    ]
    client = await start_client(stack, *candidates)
    active = await eventually(lambda: next((found for found in candidates if found.is_active), None))
    await create(client, "before")
    epoch = active.candidate.controller_epoch
    await active.stop()
    others = [found for found in candidates if found is not active]
    await eventually(lambda: sum(found.is_active for found in others) == 1)
    successor = next(found for found in others if found.is_active)
    assert successor.candidate.controller_epoch == epoch + 1
    assert sum(found.metric("activecontrollercount") for found in candidates) == 1
    assert (await create(client, "after")).error_code == ErrorCode.none
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
    client = await start_client(stack, candidate)
    assert (await create(client, "t")).error_code == ErrorCode.none
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
    described = await (await start_client(stack, second, first)).describe_controller()
    assert (described.controller_id, described.is_active) == (1, True)


async def test_a_broker_that_refuses_or_is_slow_gets_the_whole_image_in_the_end(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    broker.is_refusing = True
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="50")
    )
    client = await start_client(stack, candidate)
    await eventually(lambda: candidate.is_active and candidate.metric("activebrokercount") == 1)
    for index in range(5):
        assert (await create(client, f"t{index}")).error_code == ErrorCode.none
    assert broker.batches == []
    broker.is_refusing = False
    await eventually(lambda: len(broker.partitions) == 5)
    assert broker.batches[0].is_full


async def test_a_deletion_waits_for_a_dead_broker_and_survives_a_change_of_controller(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    brokers = [await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node)) for node in (1, 2)]
    first = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="300")
    )
    client = await start_client(stack, first)
    await eventually(lambda: brokers[0].live == [1, 2])
    await create(client, "t", 2)
    await brokers[1].unregister()
    await eventually(lambda: brokers[0].live == [1])
    deleted = await client.delete_topics(pb.DeleteTopicsRequest(names=["t"]))
    assert deleted.results[0].error_code == ErrorCode.request_timed_out
    await eventually(lambda: not brokers[0].partitions)  # the answer waits for it, but not for long
    await first.stop()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    await eventually(lambda: second.is_active and second.metric("topicstodeletecount") == 1)
    brokers[1].batches.clear()
    await brokers[1].register()
    await eventually(lambda: second.metric("topicstodeletecount") == 0)
    assert await zookeeper.exists(znodes.topic_path("t")) is None
    assert brokers[1].batches[0].is_full
    assert [topic.name for topic in brokers[1].batches[0].deleted_topics] == ["t"]


async def test_a_leaving_broker_gets_its_answer_although_another_broker_is_unreachable(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    """It gives up after a few seconds, and would take its leaderships for lost."""
    going, hung = [await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node)) for node in (1, 2)]
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 3, antipode_controller_apply_wait_ms="3600000")
    )
    client = ControllerClient(lambda: [candidate.address], timeout_ms=30_000)
    stack.push_async_callback(client.close)
    await eventually(lambda: going.live == hung.live == [1, 2])
    await create(client, "t", 2, factor=2)
    hung.gate.clear()
    (broker,) = [known for known in going.batches[-1].brokers if known.node_id == 1]
    reply = await client.controlled_shutdown(pb.ControlledShutdownRequest(node_id=1, broker_epoch=broker.broker_epoch))
    assert (reply.error_code, reply.remaining_count) == (ErrorCode.none, 0)
    await eventually(lambda: [going.leader_of("t", index) for index in range(2)] == [2, 2])


async def test_a_failed_deletion_is_tried_again(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches)
    await create(client, "t")
    broker.failing_topics.add("t")
    deletion = client.delete_topics(pb.DeleteTopicsRequest(names=["t"]))
    waiting = asyncio.ensure_future(deletion)
    await eventually(lambda: sum(bool(batch.deleted_topics) for batch in broker.batches) >= 2)
    broker.failing_topics.clear()
    assert (await waiting).results[0].error_code == ErrorCode.none


async def test_changes_that_other_tools_write_to_zookeeper_are_taken_over(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.watching.topic_watches.FIRST_LOOK_AFTER_S", 0)
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches and candidate.is_active)
    assignment = TopicAssignment(topic_id=bytes(16), partitions={0: (1,), 1: (1,)})
    await zookeeper.create(znodes.topic_path("by-hand"), encode_topic(assignment))
    await eventually(lambda: broker.leader_of("by-hand", 1) == 1)
    path = znodes.topic_path("by-hand")
    _, stat = await zookeeper.get(path)
    await zookeeper.set(path, b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}', version=stat.version)
    await eventually(lambda: broker.leader_of("by-hand", 2) == 1)
    grown, _ = await zookeeper.get(path)
    assert decode_topic("by-hand", grown).topic_id == bytes(16)
    await zookeeper.create(
        znodes.topic_config_path("by-hand"), encode_topic_config({"retention.ms": "5"}), make_path=True
    )
    await zookeeper.create(znodes.config_change_path(), encode_config_change("topics/by-hand"), is_sequence=True)
    await eventually(lambda: broker.topic_configs["by-hand"] == {"retention.ms": "5"})
    await eventually(lambda: _is_empty(zookeeper, znodes.CONFIG_CHANGES))
    await zookeeper.create(znodes.delete_topic_path("by-hand"))
    await zookeeper.create(znodes.delete_topic_path("never-was"))
    await eventually(lambda: _is_empty(zookeeper, znodes.TOPICS))
    await eventually(lambda: _is_empty(zookeeper, znodes.DELETE_TOPICS))


@pytest.mark.parametrize("first", [b"", b'{"version":1,"partitions":{}}'])
async def test_a_topic_that_another_tool_writes_in_two_steps_is_taken_over(
    stack: AsyncExitStack,
    zookeeper_connect: str,
    zookeeper: ZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    first: bytes,
) -> None:
    monkeypatch.setattr("controller.watching.topic_watches.FIRST_LOOK_AFTER_S", 0)
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches and candidate.is_active)
    path = znodes.topic_path("by-hand")
    await zookeeper.create(path, first)
    await create(await start_client(stack, candidate), "later")  # it has looked at what was written before
    assignment = TopicAssignment(topic_id=bytes(16), partitions={0: (1,)})
    await zookeeper.set(path, encode_topic(assignment))
    await eventually(lambda: broker.leader_of("by-hand", 0) == 1)


async def _is_empty(zookeeper: ZooKeeper, path: str) -> bool:
    return await zookeeper.children(path) == []


async def test_a_promotion_lifts_leader_epochs_to_the_links_floor_and_a_passive_site_refuses_clients(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches)
    link = LinkRecord(
        name="b-a",
        source_site="b",
        target_site="a",
        epoch=1,
        active_site="b",
        phase=LinkPhase.MIRRORING,
        topic_whitelist=["orders.*"],
    )
    await zookeeper.create(znodes.link_path("b-a"), encode_link(link))
    await eventually(lambda: "b-a" in broker.links)
    refused = await create(client, "orders")
    assert refused.error_code == ErrorCode.policy_violation
    mirrored = pb.NewTopic(
        name="orders", partition_count=2, replication_factor=-1, link="b-a", link_epoch=1, topic_id=bytes(range(16))
    )
    reply = await client.create_topics(pb.CreateTopicsRequest(topics=[mirrored]))
    assert (reply.results[0].error_code, reply.results[0].topic_id) == (ErrorCode.none, bytes(range(16)))
    assert (await create(client, "local")).error_code == ErrorCode.none
    link.epoch, link.active_site, link.leader_epoch_floor = 2, "a", 1 << 20
    await zookeeper.set(znodes.link_path("b-a"), encode_link(link))
    await eventually(lambda: broker.partitions["orders", 1].leader_epoch == 1 << 20)
    assert broker.partitions["local", 0].leader_epoch == 0
    assert broker.links["b-a"].epoch == 2


async def test_producer_ids_come_in_blocks_from_the_sites_range(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    blocks = [await client.allocate_producer_ids(pb.AllocateProducerIdsRequest(node_id=1)) for _ in range(3)]
    assert [block.first_producer_id for block in blocks] == [(1 << 40) + 1000 * turn for turn in range(3)]


async def test_a_lost_session_ends_the_tenure_and_another_begins(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches)
    epoch = candidate.candidate.controller_epoch
    await expire_session(candidate.candidate._zookeeper, zookeeper_connect)
    await eventually(lambda: candidate.is_active and candidate.candidate.controller_epoch > epoch)
    client = await start_client(stack, candidate)
    assert (await create(client, "t")).error_code == ErrorCode.none


async def test_a_thousand_partitions_are_written_in_one_go_and_deleted(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches)
    started = time.monotonic()
    assert (await create(client, "wide", 1000)).error_code == ErrorCode.none
    print(f"created in {time.monotonic() - started:.3f} s")
    assert sum(key[0] == "wide" for key in broker.partitions) == 1000
    assert sum(bool(batch.topics) for batch in broker.batches) == 1
    started = time.monotonic()
    await candidate.stop()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    await eventually(lambda: second.is_active and second.metric("globalpartitioncount") == 1000)
    print(f"taken over in {time.monotonic() - started:.3f} s")
    started = time.monotonic()
    other = await start_client(stack, second)
    deleted = await other.delete_topics(pb.DeleteTopicsRequest(names=["wide"]))
    assert deleted.results[0].error_code == ErrorCode.none
    print(f"deleted in {time.monotonic() - started:.3f} s")


async def test_a_defect_on_the_way_to_a_broker_ends_the_tenure(
    stack: AsyncExitStack, zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = await start_client(stack, candidate)
    await eventually(lambda: broker.batches)
    epoch = candidate.candidate.controller_epoch
    healthy = PendingChanges.batch

    def broken(*_: object, **__: object) -> ControlBatch:
        monkeypatch.setattr(PendingChanges, "batch", healthy)
        raise LookupError("made by the test")

    monkeypatch.setattr(PendingChanges, "batch", broken)
    await create(client, "t")
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
