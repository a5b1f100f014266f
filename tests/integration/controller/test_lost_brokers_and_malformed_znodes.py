"""Events that must not stop a controller: a broker that never returns, and malformed znodes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.sites.controller_site import CandidateProcess, create_topic, start_client
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import is_stand_in
from wire.znodes import layout as znodes
from wire.znodes.controller_znodes import unregistered_broker_path
from wire.znodes.link_znodes import encode_link
from wire.znodes.topic_znodes import TopicAssignment, encode_topic

pytestmark = pytest.mark.integration


async def test_a_broker_that_never_comes_back_is_given_up_for_every_controller_until_it_does(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    brokers = [await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node)) for node in (1, 2)]
    first = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="300")
    )
    client = start_client(stack, first, timeout_ms=20_000)
    await eventually(lambda: brokers[0].live == [1, 2])
    for name in ("t", "u"):
        await create_topic(client, name, 2, factor=2)
    refused = await client.unregister_broker(pb.UnregisterBrokerRequest(node_id=2))
    assert refused.error_code == ErrorCode.invalid_request
    await brokers[1].unregister()
    await eventually(lambda: brokers[0].live == [1])
    (deleted,) = (await client.delete_topics(pb.DeleteTopicsRequest(names=["t"], timeout_ms=60_000))).results
    assert deleted.error_code == ErrorCode.request_timed_out
    assert "antipode brokers unregister" in deleted.error_message
    described = await client.describe_controller()
    assert [(one.topic, list(one.absent_brokers)) for one in described.deletions] == [("t", [2])]
    unknown = await client.unregister_broker(pb.UnregisterBrokerRequest(node_id=3))
    assert unknown.error_code == ErrorCode.broker_id_not_registered
    for _ in range(2):
        done = await client.unregister_broker(pb.UnregisterBrokerRequest(node_id=2))
        assert done.error_code == ErrorCode.none, done.error_message
    assert await zookeeper.exists(znodes.topic_path("t")) is None
    assert (await create_topic(client, "t")).error_code == ErrorCode.none
    await first.stop()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    client = start_client(stack, second, timeout_ms=20_000)
    assert list((await client.describe_controller()).unregistered_brokers) == [2]
    (deleted,) = (await client.delete_topics(pb.DeleteTopicsRequest(names=["u"], timeout_ms=60_000))).results
    assert deleted.error_code == ErrorCode.none
    brokers[1].batches.clear()
    await brokers[1].register()
    await eventually(lambda: brokers[1].batches)
    assert [topic.name for topic in brokers[1].batches[0].topics] == ["t"]
    assert not (await client.describe_controller()).unregistered_brokers
    assert await zookeeper.exists(unregistered_broker_path(2)) is None


async def test_a_partition_whose_znode_has_no_state_is_created_by_the_next_controller(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = start_client(stack, first, timeout_ms=20_000)
    await eventually(lambda: broker.live == [1])
    await create_topic(client, "t", 3)
    await first.stop()
    for partition in (1, 2):
        await zookeeper.delete(znodes.partition_state_path("t", partition))
    await zookeeper.delete(znodes.partition_path("t", 2))
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    client = start_client(stack, second, timeout_ms=20_000)
    assert (await create_topic(client, "u")).error_code == ErrorCode.none
    for partition in range(3):
        assert await zookeeper.exists(znodes.partition_state_path("t", partition)) is not None


@pytest.mark.parametrize(
    "path",
    [znodes.topic_path("t"), znodes.partition_state_path("t", 1), znodes.topic_config_path("t")],
    ids=["assignment", "state", "configs"],
)
async def test_a_node_that_cannot_be_understood_costs_its_topic_and_no_other(
    path: str, stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = start_client(stack, first, timeout_ms=20_000)
    await eventually(lambda: broker.live == [1])
    for name in ("t", "u"):
        await create_topic(client, name, 2)
    await first.stop()
    good, _ = await zookeeper.get(path)
    await zookeeper.set(path, b"rubbish")
    broker.batches.clear()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    client = start_client(stack, second, timeout_ms=20_000)
    await eventually(lambda: broker.batches)
    assert [topic.name for topic in broker.batches[0].topics] == ["u"]
    assert list(broker.batches[0].quarantined_topics) == ["t"]
    described = await client.describe_controller()
    assert [(one.kind, one.name) for one in described.quarantines] == [("topic", "t")]
    assert path in described.quarantines[0].problem
    assert second.registry.get_sample_value("antipode_controller_quarantined", {"kind": "topic"}) == 1
    assert (await create_topic(client, "t")).error_code == ErrorCode.topic_already_exists
    assert (await create_topic(client, "v")).error_code == ErrorCode.none
    await zookeeper.set(path, good)
    await eventually(lambda: any(batch.is_full and not batch.quarantined_topics for batch in broker.batches[1:]))
    assert [broker.leader_of("t", index) for index in range(2)] == [1, 1]
    assert not (await client.describe_controller()).quarantines
    assert second.registry.get_sample_value("antipode_controller_quarantined", {"kind": "topic"}) == 0


async def test_a_topic_that_another_tool_wrote_while_there_was_no_controller_or_wrote_badly_comes_to_life(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    good = encode_topic(TopicAssignment(topic_id=b"i" * 16, partitions={0: (1,)}))
    await zookeeper.create(znodes.topic_path("early"), good)
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: ("early", 0) in broker.partitions and broker.leader_of("early", 0) == 1)
    await zookeeper.create(znodes.topic_path("bad"), b"{")
    await eventually(lambda: candidate.registry.get_sample_value("antipode_controller_quarantined", {"kind": "topic"}))
    client = start_client(stack, candidate, timeout_ms=20_000)
    assert (await create_topic(client, "bad")).error_code == ErrorCode.topic_already_exists
    mended = encode_topic(TopicAssignment(topic_id=b"j" * 16, partitions={0: (1,)}))
    await zookeeper.set(znodes.topic_path("bad"), mended)
    await eventually(lambda: ("bad", 0) in broker.partitions and broker.leader_of("bad", 0) == 1)
    assert candidate.candidate.controller_epoch == 1


async def test_a_link_that_cannot_be_understood_costs_the_writes_that_it_may_carry_and_no_takeover(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    link = LinkRecord(
        name="a-b", source_site="a", target_site="b", active_site="a", epoch=3, phase=LinkPhase.MIRRORING,
        topic_whitelist=["orders.*"],
    )  # fmt: skip
    await zookeeper.create(znodes.link_path("a-b"), encode_link(link))
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = start_client(stack, first, timeout_ms=20_000)
    await eventually(lambda: "a-b" in broker.links)
    await create_topic(client, "orders")
    await zookeeper.set(znodes.link_path("a-b"), b"[]")
    quarantined = ("antipode_controller_quarantined", {"kind": "link"})
    await eventually(lambda: first.registry.get_sample_value(*quarantined) == 1)
    assert broker.links["a-b"] == link, "an elected controller remembers it"
    await first.stop()
    broker.batches.clear()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    client = start_client(stack, second, timeout_ms=20_000)
    await eventually(lambda: broker.batches)
    assert is_stand_in(broker.batches[0].links[0])
    assert (await create_topic(client, "anything")).error_code == ErrorCode.policy_violation
    assert [(one.kind, one.name) for one in (await client.describe_controller()).quarantines] == [("link", "a-b")]
    await zookeeper.set(znodes.link_path("a-b"), encode_link(link))
    await eventually(lambda: broker.links["a-b"] == link)
    assert (await create_topic(client, "anything")).error_code == ErrorCode.none
    assert second.registry.get_sample_value(*quarantined) == 0


async def test_a_deletion_may_take_as_long_as_the_client_allows(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    """The broker is alive, and takes longer than the controller waits by itself."""
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="50")
    )
    client = start_client(stack, candidate, timeout_ms=20_000)
    await eventually(lambda: broker.live == [1])
    await create_topic(client, "slow")
    await create_topic(client, "slower")
    broker.gate.clear()
    (hurried,) = (await client.delete_topics(pb.DeleteTopicsRequest(names=["slow"], timeout_ms=200))).results
    assert hurried.error_code == ErrorCode.request_timed_out
    patient = asyncio.ensure_future(
        client.delete_topics(pb.DeleteTopicsRequest(names=["slower", "slow"], timeout_ms=120_000))
    )
    await eventually(lambda: candidate.metric("topicstodeletecount") == 2)
    (unhurried,) = (await client.delete_topics(pb.DeleteTopicsRequest(names=["slow"], timeout_ms=300))).results
    assert unhurried.error_code == ErrorCode.request_timed_out, "ten times the controller's wait is over now"
    broker.gate.set()
    assert [result.error_code for result in (await patient).results] == [ErrorCode.none, ErrorCode.none]
