"""The reports of a daemon on its part of a link's groups. Operators get the groups that it could
not mirror and those that are ahead at the target; the target gets the time up to which every offset
is mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from mirror.flow.board import FlowBoard
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.slots import slot_of
from mirror.link.group_ports import GroupPort
from mirror.link.link_watch import LinkView
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.sync_reports import CarriedAccess, SyncReport

PROBLEMS_LOGGED: Final = 10
"""Groups that one line of the log names."""

ALL_GROUPS: Final = "all groups"
"""The key of `problems` under which the last round's own failure is listed."""

PARTITIONS_REPORTED: Final = 5
"""Partitions that the reason of one group names."""

_log = get_logger("mirror.groups")


class AccessState(NamedTuple):
    """The access rules and configs of the source, which a daemon reports together with groups.
    `problems`: the parts that it cannot carry, and why; `carried` is None if it carries none.
    """

    problems: Mapping[str, str] = MappingProxyType({})
    carried: CarriedAccess | None = None


def joined(states: Iterable[AccessState]) -> AccessState:
    """The state of all parts of the source together; it is as old as its oldest part."""
    states = list(states)
    carried = [state.carried for state in states if state.carried is not None]
    ages_ms = [one.round_ms_ago for one in carried if one.round_ms_ago is not None]
    problems = {part: reason for state in states for part, reason in state.problems.items()}
    if not carried:
        return AccessState(problems)
    digests = {part: digest for one in carried for part, digest in one.digests.items()}
    return AccessState(problems, CarriedAccess(digests, max(ages_ms) if len(ages_ms) == len(carried) else None))


class GroupReport:
    """The report of one daemon. `daemon` is the name that people know it by, `slots` its part of
    the link. All times are monotonic: setting the machine's clock changes no age.
    """

    def __init__(
        self,
        board: FlowBoard,
        target: GroupPort,
        clock: Clock,
        *,
        daemon: str,
        slots: Callable[[], frozenset[int]],
        access: Callable[[], AccessState],
    ) -> None:
        self._board = board
        self._target = target
        self._clock = clock
        self._daemon = daemon
        self.slots = slots
        self._access = access
        # Groups, and brokers that do not list theirs, that the last rounds could not carry, and the
        # reason.
        self.problems: dict[str, str] = {}
        self._reported_ahead: set[str] = set()
        self._stale_since_ms: dict[str, float] = {}
        self._synced_ms: float | None = None

    @property
    def stale_since_ms(self) -> Mapping[str, int]:
        """For each entry of `problems`, the time (Unix ms) since which its offsets at the target
        may differ from the source.
        """
        return {name: self.unix_ms(since_ms) for name, since_ms in self._stale_since_ms.items()}

    @property
    def synced_at_ms(self) -> int:
        """The time of the last complete round over the groups (Unix ms), -1 before the first."""
        return -1 if self._synced_ms is None else self.unix_ms(self._synced_ms)

    def covered(self) -> frozenset[int]:
        """The part of the link for which this daemon can report: its slots without the partitions
        that it has not begun to mirror.
        """
        return self.slots() - {slot_of(key) for key, row in self._board.restless_rows() if not row.is_ours}

    def unix_ms(self, monotonic_ms: float) -> int:
        """A moment of the monotonic clock as Unix time (ms)."""
        return self._clock.now_ms() - round(self._clock.monotonic_ms() - monotonic_ms)

    async def send(
        self, link: LinkView, slots: frozenset[int], *, synced_at_ms: int = 0, synced_ms_ago: int | None = None
    ) -> None:
        """Report to the target what this daemon has carried of its part; a daemon without a part
        knows nothing of the other parts, and reports nothing.
        """
        if slots and link.role is not LinkRole.GONE:
            access = self._access()
            report = SyncReport(
                daemon=self._daemon,
                slots=slots,
                synced_at_ms=synced_at_ms,
                synced_ms_ago=synced_ms_ago,
                problems={**self.problems, **access.problems},
                is_resting=link.role is LinkRole.TURNED,
                access=access.carried,
            )
            await self._target.send_report(report, link=link.name, link_epoch=link.epoch)

    def clear(self) -> None:
        """Forget the problems, because this site is active or the link is gone."""
        self.problems, self._stale_since_ms = {}, {}

    def add_failure(self, reason: str, *, began_ms: float) -> None:
        """Note that the round that began then has failed for all groups."""
        self._show({**self.problems, ALL_GROUPS: reason}, began_ms=began_ms)

    def end_round(self, problems: Mapping[str, str], ahead: Mapping[str, str], *, began_ms: float) -> None:
        """A round has looked at all groups: what it could not carry, and which groups are ahead."""
        self._show(problems, began_ms=began_ms)
        self._show_ahead(ahead)
        self._synced_ms = self._clock.monotonic_ms()

    def _show(self, problems: Mapping[str, str], *, began_ms: float) -> None:
        new = {name: reason for name, reason in problems.items() if name not in (*self.problems, ALL_GROUPS)}
        if new:
            first = dict(list(new.items())[:PROBLEMS_LOGGED])
            _log.warning("cannot mirror the offsets of some groups", groups=len(new), first=first)
        self.problems = dict(problems)
        whole_until_ms = began_ms if self._synced_ms is None else self._synced_ms
        self._stale_since_ms = {name: self._stale_since_ms.get(name, whole_until_ms) for name in problems}

    def _show_ahead(self, ahead: Mapping[str, str]) -> None:
        new = {name: reason for name, reason in ahead.items() if name not in self._reported_ahead}
        if new:
            first = dict(list(new.items())[:PROBLEMS_LOGGED])
            _log.warning("groups stay ahead of the source at the target", groups=len(new), first=first)
        self._reported_ahead = set(ahead)


def listed(reasons: Iterable[str]) -> list[str]:
    """The first ones, and the number of the others."""
    listed = sorted(reasons)
    more = len(listed) - PARTITIONS_REPORTED
    return listed if more <= 0 else [*listed[:PARTITIONS_REPORTED], f"and {more} more"]
