"""Work that is done once in each epoch of a link in which another site is active.

Each agent tries a moment after the epoch began, and again after pauses that grow, until the work is
done. A new epoch begins the work again.

Callers: dr/agent/account_copies.py, dr/agent/account_settlements.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from dr.agent.account_store import LinkUnknown
from dr.sites.core.fencing import FIRST_EPOCH
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord

PAUSE_MIN_MS: Final = 1_000
FIRST_AFTER_MS: Final = 2_000
"""Time (ms) from a new epoch to the first attempt: first come the clients that move to the other
site.
"""


class _Epoch(Struct):
    """The state of the work in one epoch of a link."""

    epoch: int
    pause_ms: float = PAUSE_MIN_MS
    next_at_ms: float = 0.0
    is_done: bool = False


class EpochWork:
    """The work for all links of one agent. `work` returns True when it is done; `report` gets the
    link and the failure of an attempt.
    """

    def __init__(
        self,
        site: str,
        clock: Clock,
        *,
        pause_max_ms: float,
        work: Callable[[LinkRecord], Awaitable[bool]],
        report: Callable[[str, Exception], None],
    ) -> None:
        self._site = site
        self._clock = clock
        self._pause_max_ms = pause_max_ms
        self._work = work
        self._report = report
        self._epochs: dict[str, _Epoch] = {}

    async def look(self, record: LinkRecord) -> None:
        """Do the work for the link if the next attempt is due."""
        if record.active_site == self._site or record.epoch == FIRST_EPOCH:
            self._epochs.pop(record.name, None)
            return
        state, now_ms = self._epochs.get(record.name), self._clock.monotonic_ms()
        if state is None or state.epoch != record.epoch:
            state = self._epochs[record.name] = _Epoch(record.epoch, next_at_ms=now_ms + FIRST_AFTER_MS)
        if state.is_done or now_ms < state.next_at_ms:
            return
        state.next_at_ms = now_ms + state.pause_ms
        state.pause_ms = min(2 * state.pause_ms, self._pause_max_ms)
        try:
            state.is_done = await self._work(record)
        except LinkUnknown:
            # the link was deleted since the caller read it
            return
        except (OperationalFailure, ValueError, TypeError) as error:
            self._report(record.name, error)
