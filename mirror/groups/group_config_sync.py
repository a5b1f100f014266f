"""Copies the configs of single groups from the source of an exact link to the target, so that they
apply after a failover.

Only configs of groups that the link carries are changed; if groups may work at the target (all
links except routed ones), configs that were set there stay. A config that the target refuses,
because its own bounds are narrower, is logged once and tried again when the source's value changes.
After a change of the link's direction nothing is written: the target's controller refuses what a
round of the earlier epoch writes.

Each round leaves the digest of the configs that it has read at the source and carried. The mirror
reports it, and a planned move compares it with the fenced source's
(`wire/rules/access_digests.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from mirror.groups.group_report import AccessState
from mirror.groups.rounds import RoundProblem, repeat
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import ConfigRefused, GroupConfigPort
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView
from mirror.link.round_pauses import pause_between_rounds
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.access_digests import GROUP_CONFIGS, group_configs_digest
from wire.rules.links import carries_group
from wire.rules.sync_reports import CarriedAccess

_log = get_logger("mirror.group_configs")

Configs = Mapping[str, str]


class GroupConfigSync:
    """The task that copies the configs of groups."""

    def __init__(
        self,
        *,
        source: GroupConfigPort,
        target: GroupConfigPort,
        link: KnownLink,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_ms = interval_ms
        self._refused: dict[str, Configs] = {}
        self._carried: dict[str, Configs] = {}
        self._digest = ""
        self._carried_ms: float | None = None
        self._problem = RoundProblem(_log, "configs of groups cannot be compared")

    @property
    def state(self) -> AccessState:
        """The configs that are at the target, and why others are not."""
        ago_ms = None if self._carried_ms is None else round(self._clock.monotonic_ms() - self._carried_ms)
        problems = {f"({GROUP_CONFIGS})": self._problem.text} if self._problem.text else {}
        return AccessState(problems, CarriedAccess({GROUP_CONFIGS: self._digest}, ago_ms))

    async def run(self) -> None:
        """Compare each interval until cancelled."""
        await repeat(self.round, self._problem, pause=partial(pause_between_rounds, self._link, self._interval_ms))

    async def round(self) -> None:
        """Compare once and carry what differs. Raises Unreachable when a site does not answer."""
        link = self._link.view
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._refused.clear()
            self._digest, self._carried_ms = "", None
            return
        began_ms = self._clock.monotonic_ms()
        wanted, actual = await asyncio.gather(self._source.group_configs(), self._target.group_configs())
        self._refused = {group: configs for group, configs in self._refused.items() if wanted.get(group) == configs}
        for group in sorted(wanted.keys() | actual.keys()):
            if group in self._refused or not carries_group(link.record, group):
                continue
            theirs, ours = wanted.get(group, {}), actual.get(group, {})
            ends = ours if link.record.is_routed else self._carried.get(group, {})
            to_remove = sorted((ours.keys() & ends.keys()) - theirs.keys())
            await self._carry(group, theirs, ours, to_remove=to_remove, link=link)
        carried = {group: configs for group, configs in wanted.items() if carries_group(link.record, group)}
        self._digest, self._carried_ms = group_configs_digest(carried), began_ms

    async def _carry(
        self, group: str, theirs: Configs, ours: Configs, *, to_remove: Sequence[str], link: LinkView
    ) -> None:
        to_set = {name: value for name, value in theirs.items() if ours.get(name) != value}
        self._carried[group] = theirs
        if not to_set and not to_remove:
            return
        self._digest = ""
        try:
            await self._target.alter_group_configs(
                group, to_set=to_set, to_remove=to_remove, link=link.name, link_epoch=link.epoch
            )
        except ConfigRefused as error:
            self._refused[group] = theirs
            _log.warning("the target refuses configs of a group", group=group, reason=str(error))
            return
        _log.info("configs of a group are carried", group=group, configs=to_set, removed=list(to_remove))
