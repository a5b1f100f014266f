"""Takes a site that was failed away from back by itself, where `antipode.reinstatement.policy` is
automatic: its copies are truncated to the shared history as by `antipode links reinstate`.

Only copies whose last records were written before the promotion count: their leader epoch is below
the floor of the link's present epoch. A topic that is refused (its quarantine is full, say) is
tried again after a pause; the reason is logged each time that it changes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from mirror.admin.resets import ResetOutcome, Resets
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from runtime.clock import Clock
from runtime.logs import state_change_logger

INTERVAL_S: Final = 1.0
PAUSE_MS: Final = 30_000
"""Before a refused topic is tried again."""

_state_change = state_change_logger()


class Reinstatement:
    """One task."""

    def __init__(self, board: FlowBoard, resets: Resets, *, link: Callable[[], LinkView], clock: Clock) -> None:
        self._board = board
        self._resets = resets
        self._link = link
        self._clock = clock
        self._paused_until_ms: dict[str, float] = {}
        self._refusals: dict[str, str] = {}

    async def run(self) -> None:
        """Look each second until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.look()
            except Unreachable as error:
                _state_change.info("copies cannot be truncated yet", reason=str(error))

    async def look(self) -> None:
        """Truncate the copies that are due. Unreachable."""
        link = self._link()
        if link.role is not LinkRole.MIRRORING:
            self._paused_until_ms.clear()
            self._refusals.clear()
            return
        floor, now_ms = link.record.leader_epoch_floor, self._clock.monotonic_ms()
        topics = {key.topic for key, row in self._board.our_rows() if _is_of_former_active_site(row.facts, floor)}
        due = sorted(topic for topic in topics if self._paused_until_ms.get(topic, 0.0) <= now_ms)
        if not due:
            return
        for found in await self._resets.reset([re.escape(topic) for topic in due], is_dry_run=False, keeps_copies=True):
            if found.outcome is ResetOutcome.TRUNCATED:
                self._refusals.pop(found.topic, None)
                continue
            self._paused_until_ms[found.topic] = now_ms + PAUSE_MS
            if self._refusals.get(found.topic) != found.reason:
                _state_change.warning("copy is not truncated", topic=found.topic, reason=found.reason)
            self._refusals[found.topic] = found.reason


def _is_of_former_active_site(facts: FlowFacts, leader_epoch_floor: int) -> bool:
    return facts.state is FlowState.FAULTED and 0 <= facts.chain_epoch < leader_epoch_floor
