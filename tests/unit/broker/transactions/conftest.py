"""The site of the transaction coordinator's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.clock import ManualClock
from tests.unit.broker.transactions.transaction_site import TransactionSite


@pytest.fixture
async def site(clock: ManualClock) -> AsyncIterator[TransactionSite]:
    made = TransactionSite(clock)
    await made.loaded()
    yield made
    await made.coordinator.stop()
