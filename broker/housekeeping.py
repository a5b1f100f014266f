"""What a broker does by itself, again and again: flushes, retention, compaction, checkpoints.

Each job is a loop of its own; a failing disk is reported and tried again at the next turn, it never ends the broker. Retention and
compaction wait for the first whole image, because only then the topics' own configs are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.config import BrokerSettings
from broker.log.errors import StorageError
from broker.log.log_store import LogStore
from broker.services import Cluster
from runtime.logs import get_logger

log = get_logger(__name__)

FIRST_RETENTION_DELAY_MS = 30_000
MOVE_INTERVAL_MS = 200
"""How soon a move to another log directory begins."""


class Housekeeping:
    """The background jobs over a broker's logs."""

    def __init__(self, settings: BrokerSettings, logs: LogStore, cluster: Cluster) -> None:
        self._settings = settings
        self._logs = logs
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin all jobs."""
        settings = self._settings
        retention_ms = settings.log_retention_check_interval_ms
        jobs: tuple[tuple[str, Callable[[], Awaitable[None]], float, float], ...] = (
            ("flush", self._logs.flush_due, settings.log_flush_scheduler_interval_ms, 0),
            ("retention", self._retain, retention_ms, min(FIRST_RETENTION_DELAY_MS, retention_ms)),
            ("compaction", self._compact, settings.log_cleaner_backoff_ms, 0),
            ("move", self._move, MOVE_INTERVAL_MS, 0),
            ("checkpoint", self._checkpoint, settings.log_checkpoint_interval_ms, 0),
            ("high watermark checkpoint", self._mark, settings.high_watermark_checkpoint_interval_ms, 0),
        )
        loop = asyncio.get_running_loop()
        for name, job, interval_ms, delay_ms in jobs:
            self._tasks.append(loop.create_task(_repeat(name, job, interval_ms=interval_ms, delay_ms=delay_ms)))

    async def _retain(self) -> None:
        if not self._cluster.image.is_complete:
            return
        for sentence in await self._logs.maintain(self._settings.producer_id_expiration_ms, is_copy=self._is_copy):
            log.info(sentence)

    async def _compact(self) -> None:
        if not (self._cluster.image.is_complete and self._settings.is_log_cleaner_enabled):
            return
        for sentence in await self._logs.compact(is_copy=self._is_copy):
            log.info(sentence)

    def _is_copy(self, topic: str) -> bool:
        """A standby's log ends and begins where its source's does; cleaning begins when the site takes writes itself."""
        return not self._cluster.image.role_of_topic(topic).may_write

    async def _checkpoint(self) -> None:
        self._logs.checkpoint()

    async def _mark(self) -> None:
        self._logs.checkpoint_high_watermarks()

    async def _move(self) -> None:
        for sentence in await self._logs.move(bytes_per_second_max=self._settings.log_move_bytes_per_second_max):
            log.info(sentence)

    async def stop(self) -> None:
        """End all jobs; one that is under way is cancelled at its next pause."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(name: str, job: Callable[[], Awaitable[None]], *, interval_ms: float, delay_ms: float) -> None:
    await asyncio.sleep((delay_ms or interval_ms) / 1000)
    while True:
        try:
            await job()
        except StorageError as error:
            log.warning("background work on the logs failed", job=name, reason=str(error))
        await asyncio.sleep(interval_ms / 1000)
