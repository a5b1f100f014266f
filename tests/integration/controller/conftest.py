"""Fixtures: a ZooKeeper client, a stack that stops the brokers and controllers of a test, and a
site of one broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.sites.controller_site import CandidateProcess, ControllerSite, start_client


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


@pytest.fixture
async def site(stack: AsyncExitStack, zookeeper_connect: str) -> ControllerSite:
    """A controller, a client of it, and one broker that has its first image."""
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    candidate = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 1))
    await eventually(lambda: broker.batches)
    return ControllerSite(broker, candidate, start_client(stack, candidate))
