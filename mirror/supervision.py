"""Keeps workers alive: a task that dies is started again after a jittered wait, and whoever owns it is told first.

A broken invariant is no accident of one worker: it ends the daemon with its story. Everything else that escapes a worker is
logged with its stack and healed, because each partition can always go on from its target's log end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from mirror.core.flow_state import InvariantBroken
from runtime.logs import get_logger

RESTART_INITIAL_MS = 50
RESTART_MAX_MS = 2000
HEALTHY_AFTER_S = 10.0
"""A worker that ran this long before it died starts again without the waits of earlier deaths."""

_log = get_logger("mirror.supervisor")


class Supervisor:
    """Owns the tasks of all workers of one daemon."""

    def __init__(self, *, chance: random.Random, on_broken: Callable[[BaseException], None]) -> None:
        self._chance = chance
        self._on_broken = on_broken
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.restarts: dict[str, int] = {}

    def start(
        self, name: str, run: Callable[[], Awaitable[None]], *, on_death: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """Run `run` again and again; `on_death(reason)` comes between a death and the next start."""
        kind = name.partition(" ")[0]
        self.restarts.setdefault(kind, 0)
        self._tasks[name] = asyncio.get_running_loop().create_task(self._keep(name, kind, run, on_death), name=name)

    async def stop(self, prefix: str = "") -> None:
        """End the workers whose names begin so."""
        ending = {name: task for name, task in self._tasks.items() if name.startswith(prefix)}
        for name, task in ending.items():
            task.cancel()
            del self._tasks[name]
        await asyncio.gather(*ending.values(), return_exceptions=True)

    async def _keep(
        self,
        name: str,
        kind: str,
        run: Callable[[], Awaitable[None]],
        on_death: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            started_s = loop.time()
            try:
                await run()
                reason = f"{name} ended by itself"
            except InvariantBroken as error:
                self._on_broken(error)
                return
            except Exception as error:
                reason = f"{name} died: {type(error).__name__}: {error}"
                _log.exception("a worker died and is started again", worker=name)
            deaths = 1 if loop.time() - started_s > HEALTHY_AFTER_S else deaths + 1
            self.restarts[kind] += 1
            cap_ms = min(RESTART_MAX_MS, RESTART_INITIAL_MS * 2 ** min(deaths, 10))
            await asyncio.sleep(cap_ms * (0.5 + self._chance.random() / 2) / 1000)
            if on_death is not None:
                await on_death(reason)
