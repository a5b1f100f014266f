"""Copies the configs of single groups from the source of an exact link to the target, so that they
apply after a failover.

Only configs of groups that the link carries are changed; if groups may work at the target (all
links except routed ones), configs that were set there stay. A config that the target refuses,
because its own bounds are narrower, is logged once and tried again when the source's value changes.
After a change of the link's direction nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from mirror.groups.rounds import RoundProblem, repeat
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import ConfigRefused, GroupConfigPort
from mirror.link.link_watch import LinkView
from runtime.logs import get_logger
from wire.rules.links import carries_group

_log = get_logger("mirror.group_configs")

Configs = Mapping[str, str]


class GroupConfigSync:
    """The task that copies the configs of groups."""

    def __init__(
        self,
        *,
        source: GroupConfigPort,
        target: GroupConfigPort,
        link: Callable[[], LinkView],
        interval_ms: int,
    ) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._interval_s = interval_ms / 1000
        self._refused: dict[str, Configs] = {}
        self._carried: dict[str, Configs] = {}
        self._problem = RoundProblem(_log, "configs of groups cannot be compared")

    async def run(self) -> None:
        """Compare each interval until cancelled."""
        await repeat(self.round, self._problem, interval_s=self._interval_s)

    async def round(self) -> None:
        """Compare once and carry what differs. Raises Unreachable when a site does not answer."""
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._refused.clear()
            return
        wanted, actual = await asyncio.gather(self._source.group_configs(), self._target.group_configs())
        self._refused = {group: configs for group, configs in self._refused.items() if wanted.get(group) == configs}
        for group in sorted(wanted.keys() | actual.keys()):
            if group in self._refused or not carries_group(link.record, group):
                continue
            theirs, ours = wanted.get(group, {}), actual.get(group, {})
            ends = ours if link.record.is_routed else self._carried.get(group, {})
            await self._carry(group, theirs, ours, to_remove=sorted((ours.keys() & ends.keys()) - theirs.keys()))

    async def _carry(self, group: str, theirs: Configs, ours: Configs, *, to_remove: Sequence[str]) -> None:
        to_set = {name: value for name, value in theirs.items() if ours.get(name) != value}
        self._carried[group] = theirs
        if not to_set and not to_remove:
            return
        try:
            await self._target.alter_group_configs(group, to_set=to_set, to_remove=to_remove)
        except ConfigRefused as error:
            self._refused[group] = theirs
            _log.warning("the target refuses configs of a group", group=group, reason=str(error))
            return
        _log.info("configs of a group are carried", group=group, configs=to_set, removed=list(to_remove))
