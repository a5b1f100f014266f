"""Automatic creation of topics: which clients may cause it, and when the coordinators' topics can
be created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually, eventually_sync
from tests.support.internal_topics import internal_topic_copies
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.sites.site_broker import SiteBroker

pytestmark = pytest.mark.integration

FIND_COORDINATOR = 10
INTERNAL = ("__consumer_offsets", "__transaction_state")


def coordinator_errors(client: RawClient) -> list[ErrorCode]:
    """The errors of FindCoordinator for a group and for a transactional id."""
    return [
        client.call(FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": ["k"]}).coordinators[0].error_code
        for kind in (0, 1)
    ]


def topic_errors(client: RawClient, *topics: str) -> list[ErrorCode]:
    """The Metadata response about the topics to a client that allows their creation."""
    return [topic.error_code for topic in client.metadata(*topics, may_create=True).topics]


def test_without_auto_creation_metadata_makes_no_topic_and_coordinators_make_theirs(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = start_broker(auto_create_topics_enable="false")
    with RawClient(broker.port) as client:
        for _ in range(2):
            assert set(topic_errors(client, "t", *INTERNAL)) == {ErrorCode.unknown_topic_or_partition}
        assert not list(broker.data.glob("*-0"))
        eventually_sync(lambda: set(coordinator_errors(client)) == {ErrorCode.none})
        assert set(topic_errors(client, *INTERNAL)) == {ErrorCode.none}
        assert topic_errors(client, "t") == [ErrorCode.unknown_topic_or_partition]


async def test_coordinators_come_with_the_second_broker_when_their_topics_want_two_copies(
    zookeeper_connect: str, tmp_path: Path
) -> None:
    settings = {key.replace(".", "_"): value for key, value in internal_topic_copies(2).items()}
    brokers = [
        SiteBroker(zookeeper_connect, tmp_path / f"log-{node_id}", node_id=node_id, **settings) for node_id in (1, 2)
    ]
    async with AsyncExitStack() as stack:

        async def start(broker: SiteBroker) -> None:
            await broker.start()
            stack.push_async_callback(broker.stop)

        async def ask(question: Callable[..., Any], *arguments: str) -> Any:
            def asked() -> Any:
                with RawClient(brokers[0].broker.ports["CLIENT"]) as client:
                    return question(client, *arguments)

            return await asyncio.to_thread(asked)

        await start(brokers[0])
        for _ in range(3):
            assert set(await ask(coordinator_errors)) == {ErrorCode.coordinator_not_available}
        assert set(await ask(topic_errors, *INTERNAL)) == {ErrorCode.unknown_topic_or_partition}

        await start(brokers[1])

        async def has_coordinators() -> bool:
            return set(await ask(coordinator_errors)) == {ErrorCode.none}

        await eventually(has_coordinators)
        metadata = await ask(RawClient.metadata, *INTERNAL)
        copies = {len(partition.replica_nodes) for topic in metadata.topics for partition in topic.partitions}
        assert copies == {2}
