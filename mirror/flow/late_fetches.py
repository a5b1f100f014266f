"""Fetches partitions that become ready while their fetcher's request waits at the source.

A request that waits does not name them, and nothing but records of its own partitions ends its
wait: without these fetches, the first records of a new partition would arrive up to
`fetch.wait.max.ms` late. Brief fetches over a connection of their own bring them until that wait is
over; the fetcher's next request names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirror.link.ports import FetchParts
from wire.protocol.ids import TopicPartition

LATE_FETCHES_MS_MAX = 2_000
"""How long (ms) after a request partitions are fetched beside it. A broker that does not answer for
longer is for `stall_watch.py`.
"""

LATE_PARTITIONS_MAX = 500
"""The number of partitions that a fetcher reads beside a waiting request. More become ready
together only after a move or a start, and then they wait for the next request: brief fetches that
name thousands would take the CPU that the checks of these partitions need.
"""


class LateFetches:
    """The brief fetches of one fetcher, one after the other."""

    def __init__(self, *, next_parts: Callable[[], FetchParts], fetch: Callable[[FetchParts], Awaitable[bool]]) -> None:
        """`next_parts` has the partitions that the waiting request does not name, and is empty when
        no request waits. `fetch` brings and queues their batches; False if that is not possible at
        present.
        """
        self._next_parts = next_parts
        self._fetch = fetch
        self._task: asyncio.Task[None] | None = None
        self._parts: FetchParts = {}

    @property
    def is_under_way(self) -> bool:
        """True while a brief fetch is sent, or its batches are not queued yet."""
        return self._task is not None and not self._task.done()

    def has(self, key: TopicPartition) -> bool:
        """True while another fetch must not read the partition, because its batches would overtake
        those of the brief fetch.
        """
        return key in self._parts

    def begin(self) -> None:
        """Partitions may have become ready."""
        if self._task is not None and self._task.done() and self._task.exception() is None:
            self._task = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def check(self) -> None:
        """Raise the error that ended the fetches, if one did."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """End the fetches."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while parts := self._next_parts():
                self._parts = parts
                may_go_on = await self._fetch(parts)
                self._parts = {}
                if not may_go_on:
                    break
        finally:
            self._parts = {}
