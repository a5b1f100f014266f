"""A coordinator whose clients never pause."""

from __future__ import annotations

import asyncio

from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from tests.unit.broker.groups.test_coordinator import Site


class BusyLog(MemoryLog):
    """Other commits arrive during each append."""

    async def append(self, partition: int, records: bytes) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().append(partition, records)


async def test_endless_commits_do_not_delay_a_wait_for_earlier_ones(clock: ManualClock) -> None:
    site = Site(clock)
    epochs, site.log = site.log.epochs, BusyLog()
    site.log.epochs = epochs
    site.coordinator = site.made()
    await site.loaded()

    async def commit_on_and_on(offset: int) -> None:
        while True:
            await site.commit(offset)

    committing = [asyncio.ensure_future(commit_on_and_on(offset)) for offset in range(1, 4)]
    await eventually(lambda: site.log.append_count > 10)
    last = asyncio.ensure_future(site.commit(77))
    await asyncio.sleep(0)
    try:
        await asyncio.wait_for(site.coordinator.settled(), 10)
        assert last.done()
    finally:
        for task in committing:
            task.cancel()
        await asyncio.gather(*committing, return_exceptions=True)
        await site.coordinator.stop()
