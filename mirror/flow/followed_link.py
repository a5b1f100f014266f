"""Reads the link's record repeatedly, and turns the flows when the link's role has changed. Ends
the mirror when the link has another source, or when the target was active in the meantime without
the mirror having seen it: what the mirror knows of the target is from before that time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec.structs import replace

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import LinkTurned
from mirror.flow.core.flow_state import FlowState
from mirror.flow.rows import Row
from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView, LinkWatch
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy, sync_policy

ROWS_A_SLICE: Final = 100
SLICE_PAUSE_S: Final = 0.02
"""The pause (s) after ROWS_A_SLICE flows: the mirror takes a third of a core at most."""

_state_change = state_change_logger()


class MustBeginAnew(OperationalFailure):
    """The mirror ends, and another one begins from what both sites have."""


class SourceMoved(MustBeginAnew):
    """The link's standby follows another site, which is the source of the next mirror."""


class PromotionMissed(MustBeginAnew):
    """The target was active in the meantime, and its clients have changed what it has."""


class FollowedLink:
    """The link of one mirror; `run` is a worker. Calls `on_turned` after a change of role."""

    def __init__(
        self,
        board: FlowBoard,
        link: KnownLink,
        *,
        read: Callable[[], Awaitable[LinkView]],
        interval_ms: int,
        on_turned: Callable[[], None],
        on_moved: Callable[[MustBeginAnew], None],
    ) -> None:
        self._board = board
        self._on_turned = on_turned
        self._on_moved = on_moved
        self._watch = LinkWatch(read, interval_ms=interval_ms, on_link_view=self._apply, on_missing=self._lose)
        self._link = link
        # The flows that have yet to learn of a change of the active site.
        self._left: deque[TopicPartition] = deque()
        self._left_turn = LinkTurned(role=LinkRole.TURNED, reason="")
        self._has_some_left = asyncio.Event()

    @property
    def is_resting(self) -> bool:
        """True while the mirror's own site is active, so that nothing is fetched or reported. The
        flows may learn of it later.
        """
        return self._link.view.role is LinkRole.TURNED

    def doubt(self) -> None:
        """Read the link at once."""
        self._watch.doubt()

    async def run(self) -> None:
        """Follow the link until cancelled."""
        await self._watch.run()

    async def turn_slowly(self) -> None:
        """End the flows of a site that has become active, and begin those of a site that has become
        passive, until cancelled. The brokers need the CPU for the writers that have waited.
        """
        while True:
            await self._has_some_left.wait()
            with self._board.lines_together():
                for _ in range(min(ROWS_A_SLICE, len(self._left))):
                    self._submit(self._left.popleft(), self._left_turn)
            if not self._left:
                self._has_some_left.clear()
            await asyncio.sleep(SLICE_PAUSE_S)

    def _apply(self, found: LinkView) -> None:
        known = self._link.view
        if not _supersedes(found, known):
            return
        if found.source_site != known.source_site:
            # The view stays the old one, so that nothing that was fetched from the old source is
            # appended in the new epoch.
            self._on_moved(SourceMoved(f"link {found.name} has source {found.source_site} at epoch {found.epoch}"))
            return
        if _is_promotion_missed(found, known):
            reason = f"site {found.site} was active between epochs {known.epoch} and {found.epoch} of link {found.name}"
            self._on_moved(PromotionMissed(reason))
            return
        if (found.epoch, found.role) != (known.epoch, known.role):
            _state_change.info(found.reason, link=found.name, epoch=found.epoch, role=found.role.value)
        self._link.update(found)
        self._turn(found.role, found.reason)
        if found.role is not known.role:
            self._on_turned()

    def _lose(self, reason: str) -> None:
        known = self._link.view
        if known.role is not LinkRole.GONE:
            _state_change.warning(reason, link=known.name)
        self._link.update(replace(known, role=LinkRole.GONE, reason=reason))
        self._turn(LinkRole.GONE, reason)

    def _turn(self, role: LinkRole, reason: str) -> None:
        turn = LinkTurned(role=role, reason=reason)
        if role is LinkRole.TURNED:
            self._turn_later(self._board.rows_to_turn(role), turn)
            return
        with self._board.lines_together():
            # First the role before: a flow compares the histories again if its site was active.
            while self._left and self._left_turn.role is not role:
                self._submit(self._left.popleft(), self._left_turn)
            is_patient = role is LinkRole.MIRRORING and not self._are_writers_waiting()
            for key, _ in self._board.restless_rows() if is_patient else self._board.rows_to_turn(role):
                self._submit(key, turn)
        if is_patient and not self._left:
            self._turn_later(self._board.promoted_rows(), turn)

    def _are_writers_waiting(self) -> bool:
        """True on a sync link: the source acknowledges what the mirror has copied."""
        return sync_policy(self._link.view.record) is not SyncPolicy.NONE

    def _turn_later(self, rows: Iterable[tuple[TopicPartition, Row]], turn: LinkTurned) -> None:
        self._left, self._left_turn = deque(key for key, _ in rows), turn
        self._has_some_left.set()

    def _submit(self, key: TopicPartition, turn: LinkTurned) -> None:
        row = self._board.row(key)
        # The topic of a flow that was left may be gone from both sites meanwhile.
        if row.is_retired:
            return
        facts = row.facts
        is_promoted = facts.state is FlowState.PROMOTED
        if facts.role is not turn.role or (is_promoted and turn.role is not LinkRole.TURNED):
            self._board.submit(key, turn)


def _is_promotion_missed(found: LinkView, known: LinkView) -> bool:
    """True if the target was active between both records. Each promotion raises the floor of leader
    epochs; a fence that ends without one raises the epoch alone.
    """
    followed = (LinkRole.MIRRORING, LinkRole.DRAINING)
    is_raised = found.record.leader_epoch_floor > known.record.leader_epoch_floor
    return is_raised and found.role in followed and known.role in followed


def _supersedes(found: LinkView, known: LinkView) -> bool:
    """True if the record that was just read is valid. A lower epoch comes from an agent that lags,
    or from a link that was deleted and created again.
    """
    is_made_again = known.role is LinkRole.GONE or found.record.updated_at_ms > known.record.updated_at_ms
    return found.epoch >= known.epoch or is_made_again
