"""Stories of operators' commands and of lost data, in the middle of what the agents do by
themselves: the order of the steps is fixed, their kinds and times are random.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dr.failover.core.steps import ABORTED, CHANGING_STEPS
from dr.sites.site_client import LinkChanges
from tests.sim.links.plan import ARBITERS, SITES, Story, other
from tests.sim.links.stories import PROMOTED_S_MAX, TEMPTED_S, StoryFaults, both_ways
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import FailoverMode, SyncPolicy
from wire.znodes import arbiter_znodes

ALTERED_S_MAX: Final = 12.0
"""A command that changes a link has ended, or was refused, after this time."""


class CommandStories(StoryFaults):
    """The faults of one run, with these stories too."""

    def _stories(self) -> Mapping[Story, Callable[[], Awaitable[None]]]:
        return {
            **super()._stories(),
            Story.LEASE_REMOVED: self._lease_removed,
            Story.EMPTIED: self._emptied,
            Story.POLICY: self._policy,
            Story.LOST_DISK: self._lost_disk,
            Story.ABORTED: self._aborted,
            Story.ALTERED: self._altered,
        }

    async def _lease_removed(self) -> None:
        """The sites are parted before the lease is removed, or while it is. The second operator
        reaches only the standby, and relies on the lease that the standby knows.
        """
        active = await self._beginning()
        standby, first, second = other(active), self._operators[0], self._operators[1]
        here = (*self._sites.hosts(active), first.host)
        there = (*self._sites.hosts(standby), second.host)
        parted = both_ways(here, there)

        def part(site: str, record: LinkRecord) -> None:
            if site == active and not record.lease_ms:
                self._sever(parted, f"site {active} and its operator from site {standby} and its operator")

        if self._world.chance.random() < 0.4:
            self._sever(parted, f"site {active} and its operator from site {standby} and its operator")
        else:
            self._ledger.on_record = part
        first.alter(LinkChanges(lease_ms=0))
        await self._until(lambda: not first.is_busy, ALTERED_S_MAX)
        self._ledger.on_record = lambda *_: None
        self._sever(parted, f"site {active} and its operator from site {standby} and its operator")
        await self._wait(0.0, 2.0)
        second.move(standby, is_planned=False, is_declared_down=False)
        await self._until(lambda: not second.is_busy, PROMOTED_S_MAX)
        await self._wait(0.0, 2.0)
        self._join(parted, f"site {active} and site {standby} reach each other")
        await self._restore_lease()

    async def _restore_lease(self) -> None:
        """The first operator gives the link its lease again, as soon as the sites agree."""
        operator = self._operators[0]
        until_s = self._world.loop.now_s + PROMOTED_S_MAX
        while not all(self._has_lease(site) for site in SITES) and self._world.loop.now_s < until_s:
            if not operator.is_busy:
                await self._wait(0.2, 1.0)
                operator.alter(LinkChanges(lease_ms=self._sites.plan.lease_ms, failover_mode=self._sites.plan.mode))
            await self._world.pause(0.1)

    def _has_lease(self, site: str) -> bool:
        record = self._ledger.record_at(site)
        return record is not None and bool(record.lease_ms)

    async def _emptied(self) -> None:
        """The arbiter loses its data: while permits of the lost site are valid, while the former
        site reaches the arbiter and not the promoted one, or while a broker is marked.
        """
        active = await self._beginning()
        if self._sites.plan.sync is SyncPolicy.DEGRADE:
            await self._emptied_with_marks(active)
        elif self._world.chance.random() < 0.5:
            await self._emptied_with_permits(active)
        else:
            await self._emptied_for_the_former_site(active)

    async def _emptied_with_permits(self, active: str) -> None:
        self._lose(active)
        await self._wait(0.0, self._sites.plan.lease_ms / 2000)
        self._empty()
        self._operators[0].move(other(active), is_planned=False, is_declared_down=False)
        await self._until(lambda: not self._operators[0].is_busy, PROMOTED_S_MAX)
        await self._come_back(active)

    async def _emptied_for_the_former_site(self, active: str) -> None:
        parted = both_ways(self._sites.hosts(active), self._sites.hosts(other(active)))
        self._sever(self._around(active), f"site {active} is lost to all but clients")
        await self._promote(other(active))
        self._join(self._around(active) - parted, f"site {active} comes back, but not to site {other(active)}")
        await self._wait(0.5, 3.0)
        if self._world.chance.random() < 0.5:
            self._sever(both_ways(self._sites.hosts(other(active)), ARBITERS), "the promoted site from the arbiter")
        self._empty()
        await self._wait(1.0, 6.0)
        self._join(parted, f"site {active} reaches site {other(active)}")
        self._join(both_ways(self._sites.hosts(other(active)), ARBITERS), "the promoted site reaches the arbiter")

    async def _emptied_with_marks(self, active: str) -> None:
        line = both_ways((self._sites.mirrors[other(active)].host,), self._sites.hosts(active))
        self._sever(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._until(lambda: self._lacks_acknowledged(other(active)), PROMOTED_S_MAX)
        self._empty()
        await self._wait(1.0, 5 * self._sites.plan.lease_ms / 1000)
        self._lose(active)
        await self._until(lambda: self._is_promoted(other(active)), TEMPTED_S)
        self._join(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._come_back(active)

    def _empty(self) -> None:
        self._world.tell("the arbiter loses its data")
        self._world.ensembles[-1].lose_below(arbiter_znodes.ARBITRATION)

    async def _policy(self) -> None:
        """The standby lacks records that were acknowledged before the link became a sync link."""
        active, chance = await self._beginning(), self._world.chance
        line = both_ways((self._sites.mirrors[other(active)].host,), self._sites.hosts(active))
        self._sever(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._until(lambda: self._lacks_acknowledged(other(active)), PROMOTED_S_MAX)
        if chance.random() < 0.5:
            self._join(line, f"the line between the mirror into {other(active)} and site {active} for a moment")
            await self._wait(0.0, 0.3)
            self._sever(line, f"the line between the mirror into {other(active)} and site {active}")
        operator = self._operators[0]
        operator.alter(LinkChanges(sync=chance.choice((SyncPolicy.BLOCK, SyncPolicy.DEGRADE)), sync_timeout_ms=2_000))
        await self._until(lambda: not operator.is_busy, ALTERED_S_MAX)
        await self._wait(0.0, 3.0)
        self._lose(active)
        await self._until(lambda: self._is_promoted(other(active)), TEMPTED_S)
        self._join(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._come_back(active)

    async def _lost_disk(self) -> None:
        """The standby's broker has a new disk, and the line is too slow for another first copy."""
        active = await self._beginning()
        standby = other(active)
        line = both_ways((self._sites.mirrors[standby].host,), self._sites.hosts(active))
        (node,) = self._sites.of_site(standby)
        node.kill()
        self._sever(line, f"the line between the mirror into {standby} and site {active}")
        await self._wait(0.0, 1.0)
        self._world.tell(f"{node.host} has lost its disk")
        node.replace_disk()
        node.start()
        await self._wait(1.0, 3.0)
        if self._world.chance.random() < 0.6:
            self._join(line, f"the line between the mirror into {standby} and site {active} for a moment")
            await self._wait(0.0, 0.5)
            self._sever(line, f"the line between the mirror into {standby} and site {active}")
        self._lose(active)
        await self._until(lambda: self._is_promoted(standby), TEMPTED_S)
        self._join(line, f"the line between the mirror into {standby} and site {active}")
        await self._come_back(active)

    async def _aborted(self) -> None:
        """The first operator's process dies during a step. The second operator aborts the move, and
        the former active site writes again. After the raise of the epoch the abort is refused, and
        the second operator finishes the move.
        """
        active, chance = await self._beginning(), self._world.chance
        first, second = self._operators[0], self._operators[1]
        if chance.random() < 0.5:
            await self._fall_behind(active)
        at_step, delay_s = chance.choice(CHANGING_STEPS), chance.choice((0.0, chance.uniform(0.0, 0.5)))
        first.on_step = lambda step: self._later(delay_s, first.die) if step == at_step else None
        first.move(other(active), is_planned=chance.random() < 0.6)
        await self._until(lambda: not first.is_busy, PROMOTED_S_MAX)
        first.on_step = lambda _: None
        await self._wait(0.0, 2.0)
        second.abort(other(active))
        await self._until(lambda: not second.is_busy, PROMOTED_S_MAX)
        if second.last is not None and second.last.reason == ABORTED:
            record = self._ledger.record_at(active)
            if record is None or record.active_site != active or record.phase != LinkPhase.MIRRORING:
                self._world.violate("progress", f"the move is aborted, and {active} has the record {record}")
        elif not self._is_known_at(active, active) or not self._is_known_at(other(active), active):
            second.move(other(active), is_planned=False)
            await self._until(lambda: not second.is_busy, PROMOTED_S_MAX)

    async def _altered(self) -> None:
        """The second operator changes a policy during a step of the first one's move."""
        active, chance = await self._beginning(), self._world.chance
        first, second = self._operators[0], self._operators[1]
        is_lost = chance.random() < 0.4
        modes = (FailoverMode.MANUAL, FailoverMode.OBSERVE, FailoverMode.AUTOMATIC)
        changes = chance.choice(
            (
                LinkChanges(lease_ms=0),
                LinkChanges(failover_mode=chance.choice(modes)),
                LinkChanges(sync=chance.choice((SyncPolicy.NONE, SyncPolicy.BLOCK)), sync_timeout_ms=2_000),
            )
        )
        at_step, delay_s = chance.choice(CHANGING_STEPS), chance.choice((0.0, chance.uniform(0.0, 0.5)))

        def change() -> None:
            if not second.is_busy:
                second.alter(changes)

        first.on_step = lambda step: self._later(delay_s, change) if step == at_step else None
        if is_lost:
            self._lose(active)
        first.move(other(active), is_planned=not is_lost)
        await self._until(lambda: not first.is_busy, PROMOTED_S_MAX)
        first.on_step = lambda _: None
        await self._until(lambda: not second.is_busy, ALTERED_S_MAX)
        if is_lost:
            await self._promote(other(active))
            await self._come_back(active)
        await self._restore_lease()
