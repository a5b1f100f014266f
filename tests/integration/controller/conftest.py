"""Fixtures: a ZooKeeper client, and a stack that stops the brokers and controllers of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from runtime.zookeeper.client import ZooKeeper


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
