"""Fixture: connection servers without a broker behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.lone_brokers.connection_servers import Starter, connection_servers


@pytest.fixture
async def start() -> AsyncIterator[Starter]:
    async with connection_servers() as begin:
        yield begin
