"""A target that does not answer while the notes of other daemons are read, for slots that a daemon
gains.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

from mirror.link.core.slots import Strategy
from mirror.link.ports import Unreachable
from mirror.sharing import group_sharing, zookeeper_sharing
from mirror.sharing.group_sharing import GroupSharing
from mirror.sharing.zookeeper_sharing import ZooKeeperSharing
from tests.support.clock import ManualClock
from tests.support.eventually import eventually


@pytest.mark.parametrize("kind", [GroupSharing, ZooKeeperSharing])
async def test_the_daemon_asks_again_and_says_why_it_has_no_share(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr(group_sharing, "RETRY_S", 0)
    monkeypatch.setattr(zookeeper_sharing, "RETRY_S", 0)
    sharing = kind(MagicMock(), "a-b", strategy=next(iter(Strategy)), session_timeout_ms=6_000, clock=ManualClock())
    attempts = 0

    async def gain() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise Unreachable("the target does not answer")
        await asyncio.Event().wait()

    monkeypatch.setattr(sharing, "_be_a_member", gain)
    running = asyncio.create_task(sharing.run())
    await eventually(lambda: attempts == 2 or running.done())
    assert not running.done(), "its death would be counted as a fault of the daemon"
    assert "the target does not answer" in sharing.ownership.outage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
