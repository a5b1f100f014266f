"""Looks after the quarantine: warns before entries expire and before a partition's bound is
reached, deletes what has expired, and keeps the figures for metrics and agents.

`core/quarantine_retention.py` decides. The files are listed in a thread and deleted on the event
loop, where truncations append to them: a file that has grown since is newer, and stays.
"""

from __future__ import annotations

import asyncio

from broker.log.directories.log_store import LogStore
from broker.replication.core.quarantine_retention import KeptEntry, QuarantineRetention
from broker.replication.quarantine import BYTES_MAX_KEY, Quarantine
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.times import iso_time

RETENTION_KEY = "antipode.quarantine.retention.ms"
EXPIRED_AT_ONCE = 100
"""Entries that are deleted without a pause: their accounts are read again before."""

log = get_logger(__name__)


class QuarantineUpkeep:
    """The upkeep of one broker's quarantine."""

    def __init__(self, configs: DynamicConfigs, logs: LogStore, quarantine: Quarantine, clock: Clock) -> None:
        self._configs = configs
        self._logs = logs
        self._quarantine = quarantine
        self._clock = clock
        self._retention = QuarantineRetention()

    async def look(self) -> None:
        """Look once. OSError of a disk is logged, and the next look tries again."""
        directories = [directory.path for directory in self._logs.directories]
        settings = self._configs.current
        try:
            entries = await asyncio.to_thread(self._quarantine.kept, directories)
            found = self._retention.look(
                entries,
                retention_ms=settings.quarantine_retention_ms,
                bytes_max=settings.truncated_bytes_kept_max,
                now_ms=self._clock.now_ms(),
                monotonic_ms=self._clock.monotonic_ms(),
            )
            self._quarantine.use = found.use
            for entry, expires_at_ms in found.expiring:
                log.warning(
                    "quarantine entry expires soon",
                    name=entry.name,
                    bytes=entry.size_bytes,
                    expires_at=iso_time(expires_at_ms),
                    remedy=f"antipode quarantine export or replay, or a larger {RETENTION_KEY}",
                )
            for place, percent in found.filling:
                log.warning(
                    "quarantine is almost full",
                    partition=place,
                    percent=round(percent),
                    remedy=f"antipode quarantine export and delete, or a larger {BYTES_MAX_KEY}",
                )
            await self._expire(directories, found.expired)
        except OSError as error:
            log.warning("quarantine entries could not be checked", reason=str(error))

    async def _expire(self, directories: list[str], expired: tuple[KeptEntry, ...]) -> None:
        for begin in range(0, len(expired), EXPIRED_AT_ONCE):
            some = expired[begin : begin + EXPIRED_AT_ONCE]
            deleted = set(self._quarantine.expire(directories, some))
            for entry in some:
                if entry.name in deleted:
                    log.warning("quarantine entry expired", name=entry.name, bytes=entry.size_bytes)
            # clients wait for this loop
            await asyncio.sleep(0)
