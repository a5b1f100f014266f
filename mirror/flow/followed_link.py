"""Reads the link's record repeatedly, and turns the flows when the link's role has changed. Ends
the mirror when the link has another source.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import LinkTurned
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView, LinkWatch
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure

_state_change = state_change_logger()


class SourceMoved(OperationalFailure):
    """The link's standby follows another site: the mirror begins anew, with that site as its
    source.
    """


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
        on_moved: Callable[[SourceMoved], None],
    ) -> None:
        self._board = board
        self._on_turned = on_turned
        self._on_moved = on_moved
        self._watch = LinkWatch(read, interval_ms=interval_ms, on_link_view=self._apply, on_missing=self._lose)
        self._link = link

    def doubt(self) -> None:
        """Read the link at once."""
        self._watch.doubt()

    async def run(self) -> None:
        """Follow the link until cancelled."""
        await self._watch.run()

    def _apply(self, found: LinkView) -> None:
        known = self._link.view
        if not _supersedes(found, known):
            return
        if found.source_site != known.source_site:
            # The view stays the old one, so that nothing that was fetched from the old source is
            # appended in the new epoch.
            self._on_moved(SourceMoved(f"link {found.name} has source {found.source_site} at epoch {found.epoch}"))
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
        for key, row in self._board.rows_to_turn(role):
            is_promoted = row.facts.state is FlowState.PROMOTED
            if row.facts.role is not role or (is_promoted and role is not LinkRole.TURNED):
                self._board.submit(key, LinkTurned(role=role, reason=reason))


def _supersedes(found: LinkView, known: LinkView) -> bool:
    """True if the record that was just read is valid. A lower epoch comes from an agent that lags,
    or from a link that was deleted and created again.
    """
    is_made_again = known.role is LinkRole.GONE or found.record.updated_at_ms > known.record.updated_at_ms
    return found.epoch >= known.epoch or is_made_again
