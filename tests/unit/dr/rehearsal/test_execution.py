"""The end of a rehearsal that is interrupted. Promised: what it made is removed before it ends, and
what could not be removed is known.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dr.rehearsal.execution import Rehearsal, RehearsalRequest
from dr.sites.channels import Channels
from runtime.clock import SystemClock
from runtime.process import OperationalFailure


class SlowSandbox:
    """Cannot begin, and is removed when `may_end` is set."""

    def __init__(self, problem: str = "") -> None:
        self.is_dropping, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_dropped = False
        self._problem = problem

    async def clear(self) -> str:
        raise OperationalFailure("ZooKeeper does not answer")

    async def drop(self) -> None:
        self.is_dropping.set()
        await self.may_end.wait()
        if self._problem:
            raise OperationalFailure(self._problem)
        self.is_dropped = True


def rehearsal_with(sandbox: Any) -> Rehearsal:
    request = RehearsalRequest(link="a-b", standby="b", bootstrap_servers="x:1", records=1)
    site: Any = None
    return Rehearsal(request, site=site, sandbox=sandbox, channels=Channels(), clock=SystemClock())


async def test_a_stop_during_the_removal_waits_for_its_end() -> None:
    sandbox = SlowSandbox()
    running = asyncio.create_task(rehearsal_with(sandbox).run())
    await sandbox.is_dropping.wait()
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, sandbox.may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sandbox.is_dropped


async def test_what_a_stopped_rehearsal_leaves_is_known() -> None:
    sandbox = SlowSandbox("clones cannot be removed")
    rehearsal = rehearsal_with(sandbox)
    running = asyncio.create_task(rehearsal.run())
    await sandbox.is_dropping.wait()
    running.cancel()
    sandbox.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert rehearsal.left_behind == ["clones cannot be removed"]
