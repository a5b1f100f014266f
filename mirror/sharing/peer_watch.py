"""Compares this daemon's description with those of the other daemons of a shared link: settings
that differ, partitions without an owner, daemons that fail to carry groups' offsets. It also makes
this daemon's own description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from msgspec import Struct, field

from mirror.flow.board import FlowBoard
from mirror.sharing.core.peers import ACCEPTED, Daemon, DaemonShare, Disagreement, Untaken, disagreements, untaken
from mirror.sharing.ownership import Ownership
from runtime.logs import get_logger

PARTITIONS_LOGGED = 10

_log = get_logger("mirror.sharing")


class PeersStatus(Struct, frozen=True, kw_only=True):
    """The other daemons of a shared link, as this daemon sees them."""

    disagreements: tuple[Disagreement, ...] = ()
    untaken: tuple[Untaken, ...] = ()
    failing: Mapping[str, str] = field(default_factory=dict)
    owned_slots: int = 0
    """The number of slots that this daemon owns."""


class PeerWatch:
    """The watch of one daemon; alone on its link it has no `ownership`."""

    def __init__(
        self, board: FlowBoard, ownership: Ownership | None, group_problems: Callable[[], Mapping[str, str]]
    ) -> None:
        self._board = board
        self._ownership = ownership
        self._group_problems = group_problems
        self.disagreements: tuple[Disagreement, ...] = ()
        self.untaken: tuple[Untaken, ...] = ()

    def status(self) -> PeersStatus | None:
        """Return what is known of the other daemons now; None if the link is not shared."""
        if self._ownership is None:
            return None
        return PeersStatus(
            disagreements=self.disagreements,
            untaken=self.untaken,
            failing={share.daemon.name: share.daemon.problem for share in self._others() if share.daemon.problem},
            owned_slots=len(self._ownership.slots),
        )

    def look(self) -> None:
        """Compare, and log the differences that are new."""
        if self._ownership is None:
            return
        own, others = self._ownership.own, self._others()
        self._ownership.own = own._replace(problem=self._problem(own))
        self._apply_disagreements(disagreements(own, others))
        elsewhere = [key for key, row in self._board.rows() if not row.is_ours]
        self._take_untaken(untaken(elsewhere, others))

    def _others(self) -> tuple[DaemonShare, ...]:
        """A daemon without a share receives no descriptions, and those it had are outdated."""
        return () if self._ownership is None or self._ownership.outage else self._ownership.others

    def _problem(self, own: Daemon) -> str:
        """Name one group that cannot be carried, always the same one until all can: the other
        daemons need to know only when the failures begin and end.
        """
        problems = sorted(self._group_problems().items())
        return own.problem or "{}: {}".format(*problems[0]) if problems else ""

    def _apply_disagreements(self, found: tuple[Disagreement, ...]) -> None:
        for one in found:
            if one not in self.disagreements:
                _log.warning(
                    one.sentence,
                    key=one.key,
                    value=one.ours,
                    daemon=one.daemon,
                    value_there=one.theirs,
                    accepted=ACCEPTED,
                )
        for one in self.disagreements:
            if one not in found:
                _log.info("daemons agree again", key=one.key, daemon=one.daemon)
        self.disagreements = found

    def _take_untaken(self, found: tuple[Untaken, ...]) -> None:
        new = [one for one in found if one not in self.untaken]
        if new:
            first = [one.sentence for one in islice(new, PARTITIONS_LOGGED)]
            _log.warning("no daemon mirrors some partitions", partitions=len(found), first=first)
        elif self.untaken and not found:
            _log.info("all partitions have a daemon that mirrors them")
        self.untaken = found
