"""Brokers of a site as they come, leave and hang: leaders and leader epochs of their partitions,
the images that they receive, and their blocks of producer ids.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.sites.controller_site import CandidateProcess, ControllerSite, create_topic, start_client
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import encode_topic_config
from wire.znodes.controller_znodes import EPOCH_RAISES
from wire.znodes.link_znodes import encode_link
from wire.znodes.topic_znodes import decode_partition_state

pytestmark = pytest.mark.integration


async def test_unclean_elections_may_be_allowed_for_a_topic_and_for_all_topics(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    late = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    last = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 2))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 3))
    client = start_client(stack, candidate)
    await eventually(lambda: late.live == last.live == [1, 2])
    for topic in ("t", "u"):
        await create_topic(client, topic, factor=2)
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
    client = start_client(stack, candidate)
    await eventually(lambda: staying.live == [1, 2])
    await create_topic(client, "t", 2)
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


async def test_a_broker_that_refuses_or_is_slow_gets_the_whole_image_in_the_end(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    broker.is_refusing = True
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="50")
    )
    client = start_client(stack, candidate)
    await eventually(lambda: candidate.is_active and candidate.metric("activebrokercount") == 1)
    for index in range(5):
        assert (await create_topic(client, f"t{index}")).error_code == ErrorCode.none
    assert broker.batches == []
    broker.is_refusing = False
    await eventually(lambda: len(broker.partitions) == 5)
    assert broker.batches[0].is_full


async def test_a_leaving_broker_gets_its_answer_although_another_broker_is_unreachable(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    """It gives up after a few seconds, and would take its leaderships for lost."""
    going, hung = [await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node)) for node in (1, 2)]
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 3, antipode_controller_apply_wait_ms="3600000")
    )
    client = start_client(stack, candidate, timeout_ms=30_000)
    await eventually(lambda: going.live == hung.live == [1, 2])
    await create_topic(client, "t", 2, factor=2)
    hung.gate.clear()
    (broker,) = [known for known in going.batches[-1].brokers if known.node_id == 1]
    reply = await client.controlled_shutdown(pb.ControlledShutdownRequest(node_id=1, broker_epoch=broker.broker_epoch))
    assert (reply.error_code, reply.remaining_count) == (ErrorCode.none, 0)
    await eventually(lambda: [going.leader_of("t", index) for index in range(2)] == [2, 2])


async def test_a_promotion_lifts_leader_epochs_to_the_links_floor_and_a_passive_site_refuses_clients(
    site: ControllerSite, zookeeper: ZooKeeper
) -> None:
    broker, _, client = site
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
    refused = await create_topic(client, "orders")
    assert refused.error_code == ErrorCode.policy_violation
    mirrored = pb.NewTopic(
        name="orders", partition_count=2, replication_factor=-1, link="b-a", link_epoch=1, topic_id=bytes(range(16))
    )
    reply = await client.create_topics(pb.CreateTopicsRequest(topics=[mirrored]))
    assert (reply.results[0].error_code, reply.results[0].topic_id) == (ErrorCode.none, bytes(range(16)))
    assert (await create_topic(client, "local")).error_code == ErrorCode.none
    link.epoch, link.active_site, link.leader_epoch_floor = 2, "a", 1 << 20
    await zookeeper.set(znodes.link_path("b-a"), encode_link(link))
    await eventually(lambda: any(batch.epoch_raises for batch in broker.batches))
    (raised,) = [epoch_raise for batch in broker.batches for epoch_raise in batch.epoch_raises]
    assert (raised.floor, list(raised.topics)) == (1 << 20, ["orders"])
    assert broker.partitions["local", 0].leader_epoch == 0
    assert broker.links["b-a"].epoch == 2
    # brokers get the raise at once, and the states of the partitions follow
    paths = [znodes.partition_state_path("orders", index) for index in range(2)]
    await eventually(lambda: broker.partitions["orders", 1].partition_epoch == 1)
    assert broker.partitions["orders", 1].leader_epoch == 1 << 20
    states = [decode_partition_state("orders", 0, (await zookeeper.get(path))[0]) for path in paths]
    assert [state.leader_epoch for state in states] == [1 << 20, 1 << 20]
    assert await zookeeper.children(EPOCH_RAISES) == []


async def test_producer_ids_come_in_blocks_from_the_sites_range(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    client = start_client(stack, candidate)
    blocks = [await client.allocate_producer_ids(pb.AllocateProducerIdsRequest(node_id=1)) for _ in range(3)]
    assert [block.first_producer_id for block in blocks] == [(1 << 40) + 1000 * turn for turn in range(3)]
