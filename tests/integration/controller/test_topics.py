"""Topics that clients create, change and delete through a controller: real ZooKeeper, and brokers
that record the batches that they receive.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.sites.controller_site import CandidateProcess, ControllerSite, create_topic, start_client
from wire.control import controller_pb2 as pb
from wire.znodes import layout as znodes
from wire.znodes.topic_znodes import decode_partition_state, decode_topic

pytestmark = pytest.mark.integration


async def test_a_created_topic_is_stored_as_kafka_stores_it_and_known_to_brokers_when_the_reply_comes(
    site: ControllerSite, zookeeper: ZooKeeper
) -> None:
    broker, candidate, client = site
    assert broker.batches[0].is_full
    result = await create_topic(client, "orders", 3, retention_ms="1000")
    assert result.error_code == ErrorCode.none
    assert (result.partition_count, result.replication_factor) == (3, 1)
    assert [broker.leader_of("orders", index) for index in range(3)] == [1] * 3
    assert broker.topic_configs["orders"] == {"retention.ms": "1000"}
    stored = decode_topic("orders", (await zookeeper.get(znodes.topic_path("orders")))[0])
    assert stored.topic_id == result.topic_id
    state, stat = await zookeeper.get(znodes.partition_state_path("orders", 2))
    assert decode_partition_state("orders", 2, state).leader == 1
    assert stat.version == broker.partitions["orders", 2].partition_epoch
    again = await create_topic(client, "orders")
    assert again.error_code == ErrorCode.topic_already_exists
    assert candidate.metric("globalpartitioncount") == 3


async def test_topics_grow_change_configs_and_are_deleted(site: ControllerSite, zookeeper: ZooKeeper) -> None:
    broker, _, client = site
    created = await create_topic(client, "t")
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
    assert (await create_topic(client, "t")).error_code == ErrorCode.none


async def test_a_deletion_waits_for_a_dead_broker_and_survives_a_change_of_controller(
    stack: AsyncExitStack, zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    brokers = [await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node)) for node in (1, 2)]
    first = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 1, antipode_controller_apply_wait_ms="300")
    )
    client = start_client(stack, first)
    await eventually(lambda: brokers[0].live == [1, 2])
    await create_topic(client, "t", 2)
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


async def test_a_failed_deletion_is_tried_again(site: ControllerSite) -> None:
    broker, _, client = site
    await create_topic(client, "t")
    broker.failing_topics.add("t")
    deletion = client.delete_topics(pb.DeleteTopicsRequest(names=["t"]))
    waiting = asyncio.ensure_future(deletion)
    await eventually(lambda: sum(bool(batch.deleted_topics) for batch in broker.batches) >= 2)
    broker.failing_topics.clear()
    assert (await waiting).results[0].error_code == ErrorCode.none


async def test_a_thousand_partitions_are_written_in_one_go_and_deleted(
    site: ControllerSite, stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    broker, candidate, client = site
    started = time.monotonic()
    assert (await create_topic(client, "wide", 1000)).error_code == ErrorCode.none
    print(f"created in {time.monotonic() - started:.3f} s")
    assert sum(key[0] == "wide" for key in broker.partitions) == 1000
    assert sum(bool(batch.topics) for batch in broker.batches) == 1
    started = time.monotonic()
    await candidate.stop()
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 2))
    await eventually(lambda: second.is_active and second.metric("globalpartitioncount") == 1000)
    print(f"taken over in {time.monotonic() - started:.3f} s")
    started = time.monotonic()
    other = start_client(stack, second)
    deleted = await other.delete_topics(pb.DeleteTopicsRequest(names=["wide"]))
    assert deleted.results[0].error_code == ErrorCode.none
    print(f"deleted in {time.monotonic() - started:.3f} s")
