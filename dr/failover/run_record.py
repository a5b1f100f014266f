"""The record of a failover run, stored beside the link at the site that becomes active: the user,
the host, the policy, the steps and the outcome. People read it (`antipode failovers show`); a run
never reads it, because it decides from the state of the sites.

Writing delays no step: a background task writes the newest state, and `close` writes the last
one. A run with nothing new repeats its state, which shows that its process is alive.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from dr.failover.core.recorded_run import RUNNING, RunRecord
from dr.failover.journal import acting
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.process import OperationalFailure

QUIET_MS: Final = 250
"""The time between two reports: while writers wait, reports of single steps would occupy the site
that they wait for.
"""
REPORT_INTERVAL_MS: Final = 1_000
"""The time after which a run with nothing new repeats its state."""


class RunKeeper:
    """Stores the record of one run. The caller must await `close`."""

    def __init__(
        self, link: str, site: SiteClient, clock: Clock, *, policy: dict[str, Any], asked_by: str = ""
    ) -> None:
        actor = acting()
        self._site = site
        self._clock = clock
        self._began_at_ms = clock.now_ms()
        self._name = f"{self._began_at_ms:015d}-{actor['pid']}"
        self._record = RunRecord(
            link=link,
            to_site=site.name,
            who=f"{asked_by} ({actor['who']})" if asked_by else actor["who"],
            command=actor["command"],
            began_at_ms=self._began_at_ms,
            updated_at_ms=self._began_at_ms,
            outcome=RUNNING,
            reason="",
            epoch=0,
            policy=policy,
        )
        self._changed = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def note(self, *, steps: tuple[dict[str, Any], ...], epoch: int, reason: str, outcome: str = RUNNING) -> None:
        """Replace the state that is stored next."""
        fields = {**to_builtins(self._record), "steps": steps, "epoch": epoch, "reason": reason, "outcome": outcome}
        self._record = RunRecord(**{**fields, "updated_at_ms": self._clock.now_ms()})
        self._changed.set()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_again_and_again())

    async def _write_again_and_again(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REPORT_INTERVAL_MS / 1000):
                    await self._changed.wait()
            except TimeoutError:
                self._record = replace(self._record, updated_at_ms=self._clock.now_ms())
            self._changed.clear()
            await self._write()
            await asyncio.sleep(QUIET_MS / 1000)

    async def _write(self) -> None:
        try:
            await self._site.record_run(self._record.link, run=self._name, document=self._record.to_json())
        except OperationalFailure:
            return  # The site may have an earlier release, or not answer; the steps of the run report that already.

    async def close(self) -> None:
        """Write the last state, if there is one."""
        if self._writing is None:
            return
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        await self._write()
