"""A site of two scripted brokers, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.clients.scripted_broker import ScriptedBroker
from tests.support.clients.scripted_site import Site
from wire.client.raw_client import (
    KafkaClient,
)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with ScriptedBroker() as first, ScriptedBroker() as second:
        yield Site(first, second)


@pytest.fixture
async def client(site: Site) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(site.bootstrap, retry_budget_ms=20_000) as running:
        yield running
