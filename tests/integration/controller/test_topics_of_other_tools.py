"""Topics that other tools write to ZooKeeper: a controller takes them over."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.sites.controller_site import CandidateProcess, create_topic, start_client
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import encode_config_change, encode_topic_config
from wire.znodes.topic_znodes import TopicAssignment, decode_topic, encode_topic

pytestmark = pytest.mark.integration


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
    await create_topic(start_client(stack, candidate), "later")  # it has looked at what was written before
    assignment = TopicAssignment(topic_id=bytes(16), partitions={0: (1,)})
    await zookeeper.set(path, encode_topic(assignment))
    await eventually(lambda: broker.leader_of("by-hand", 0) == 1)


async def _is_empty(zookeeper: ZooKeeper, path: str) -> bool:
    return await zookeeper.children(path) == []
