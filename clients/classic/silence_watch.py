"""Stops a classic consumer in time when ZooKeeper does not answer.

The session may then have ended without our noticing, and other members may claim the partitions.
kazoo reports SUSPENDED only when an answer is long overdue, which is too late: the time is counted
from the moment at which the last answered request was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from runtime.clock import Clock
from runtime.zookeeper.client import ZooKeeper
from wire.znodes.layout import BROKER_IDS

LISTENS_PER_SESSION: Final = 12
SILENCE_SHARE_MAX: Final = 2 / 3
"""The share of a session's time without an answer after which the consumer reads nothing. The
remaining time lets fetchers end and covers differences between clocks.
"""


class SilenceWatch:
    """Sends ZooKeeper a request now and then. `on_silence` is awaited in each interval in which
    ZooKeeper has not answered for too long; `on_answer` is called when it answers again.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        *,
        session_timeout_ms: int,
        on_silence: Callable[[], Awaitable[None]],
        on_answer: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._on_silence = on_silence
        self._on_answer = on_answer
        self._received_at_ms = 0.0
        self.is_silent = False

    async def run(self) -> None:
        """Send requests until the task is cancelled."""
        self._received_at_ms = self._clock.monotonic_ms()
        interval_s = self._session_timeout_ms / LISTENS_PER_SESSION / 1000
        asking: asyncio.Task[object] | None = None
        asked_at_ms = 0.0
        try:
            while True:
                if asking is None:
                    asked_at_ms = self._clock.monotonic_ms()
                    asking = asyncio.ensure_future(self._zookeeper.exists(BROKER_IDS))
                await asyncio.wait([asking], timeout=interval_s)
                if asking.done():
                    if asking.exception() is None:
                        self._note_answer(asked_at_ms)
                    asking = None
                    await asyncio.sleep(interval_s)
                silent_ms = self._clock.monotonic_ms() - self._received_at_ms
                if silent_ms + 1000 * interval_s > self._session_timeout_ms * SILENCE_SHARE_MAX:
                    await self._on_silence()
                    self.is_silent = True
        finally:
            if asking is not None:
                asking.cancel()

    def _note_answer(self, asked_at_ms: float) -> None:
        self._received_at_ms = asked_at_ms
        if self.is_silent:
            self.is_silent = False
            self._on_answer()
