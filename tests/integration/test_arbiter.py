"""Holders and their marks at a real arbiter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dr.agent.arbiter import Arbiter, ArbiterChanged
from runtime.clock import SystemClock
from tests.support.eventually import eventually
from wire.znodes.arbiter_znodes import Holder

pytestmark = pytest.mark.integration

BROKER = Holder("a", 1001)
TIMEOUT_MS = 5_000


@pytest.fixture
async def arbiter(zookeeper_connect: str) -> AsyncIterator[Arbiter]:
    found = Arbiter(zookeeper_connect, session_timeout_ms=TIMEOUT_MS, clock=SystemClock())
    found.start()
    await eventually(lambda: found.is_reachable)
    yield found
    await found.stop()


async def test_a_holder_that_was_marked_meanwhile_keeps_its_mark(arbiter: Arbiter) -> None:
    """A broker that its site takes for gone may still reach the arbiter, and mark itself between
    the look at the marks and the suspension.
    """
    link = "marked"
    version, is_marked = await arbiter.register_holder(link, BROKER, timeout_ms=TIMEOUT_MS)
    assert not is_marked
    await arbiter.mark_holder(link, BROKER, is_out_of_sync=True, version=version, timeout_ms=TIMEOUT_MS)
    with pytest.raises(ArbiterChanged):
        await arbiter.suspend_holder(link, BROKER, timeout_ms=TIMEOUT_MS)
    assert await arbiter.out_of_sync(link, timeout_ms=TIMEOUT_MS) == [BROKER]


async def test_the_renewals_of_a_suspended_holder_end(arbiter: Arbiter) -> None:
    link = "suspended"
    version, _ = await arbiter.register_holder(link, BROKER, timeout_ms=TIMEOUT_MS)
    suspended = await arbiter.suspend_holder(link, BROKER, timeout_ms=TIMEOUT_MS)
    assert suspended > version
    with pytest.raises(ArbiterChanged):
        await arbiter.mark_holder(link, BROKER, is_out_of_sync=True, version=version, timeout_ms=TIMEOUT_MS)
    await arbiter.release_holder(link, BROKER, timeout_ms=TIMEOUT_MS, version=suspended)
    assert await arbiter.holders(link, timeout_ms=TIMEOUT_MS) == []
