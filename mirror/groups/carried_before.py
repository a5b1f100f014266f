"""Finds offsets at the target that earlier daemons have carried and that the source lacks: groups
that were deleted at the source while no mirror ran.

The target marks each offset that a mirror writes with the link and its epoch, and a commit of the
group itself removes the mark. Only marked offsets of the current epoch count as carried, so a
group's own offset is never removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final

from mirror.groups.core.group_offsets import GroupOffsets
from mirror.groups.core.group_state import Circumstances
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import GroupPort
from mirror.link.link_watch import LinkView
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.links import carries_group

ASKED_AGAIN_MS: Final = 60_000
"""Interval (ms) at which the target is asked again: this daemon may have got partitions of another
one.
"""

_log = get_logger("mirror.groups")


class CarriedBefore:
    """The questions of one daemon; `offsets` learns what the target answers."""

    def __init__(self, offsets: GroupOffsets, target: GroupPort, clock: Clock) -> None:
        self._offsets = offsets
        self._target = target
        self._clock = clock
        self._asked_ms = -math.inf
        self._link_epoch = -1

    async def adopt(
        self, at_target: Collection[str], link: LinkView, circumstances: Callable[[], Circumstances]
    ) -> None:
        """Ask about the target's groups that the source does not explain, when it is time.
        Unreachable.
        """
        now_ms = self._clock.monotonic_ms()
        is_due = link.epoch != self._link_epoch or now_ms - self._asked_ms >= ASKED_AGAIN_MS
        if not (is_due and self._target.keeps_offsets and link.role is LinkRole.MIRRORING):
            return
        names = [name for name in self._offsets.unexplained(at_target) if carries_group(link.record, name)]
        found = await self._target.carried(names, link=link.name, link_epoch=link.epoch) if names else {}
        adopted = [name for name, carried in found.items() if self._offsets.adopt(name, carried, circumstances())]
        if adopted:
            _log.info("found carried offsets that the source lacks", groups=len(adopted), first=sorted(adopted)[:10])
        self._asked_ms, self._link_epoch = now_ms, link.epoch
