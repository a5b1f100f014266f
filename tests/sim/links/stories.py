"""Directed faults of two sites: the active site is lost in the ways for which the rules of leases,
accounts, quarantines and gates exist. The order of the steps is fixed, their kinds and times are
random.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final

from tests.sim.links.faults import LinkFaults, Pairs
from tests.sim.links.ledger import LinkLedger, has_batch
from tests.sim.links.operator import Operator
from tests.sim.links.plan import ARBITERS, LINK, SITES, Story, other, site_of
from tests.sim.links.world_of_two import MirrorHost, TwoSites
from tests.sim.node import Node
from tests.sim.world import World
from wire.rules.links import FailoverMode
from wire.znodes import arbiter_znodes
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import decode_controller

TEMPTED_S: Final = 12.0
"""In this time a site would promote itself if no gate were closed."""
LOOK_S: Final = 0.05
PROMOTED_S_MAX: Final = 25.0
"""How long a story waits for a promotion, which may be refused."""
IN_FLIGHT_S: Final = 0.0015
"""The leader's appended records are on their way to its follower at that time."""
RAISED_S: Final = 2.0
"""For this time a raise of leader epochs is in force before the states of partitions have it."""
STORED_S_MAX: Final = 4.0
"""After this the states of partitions have the raised leader epochs."""


class StoryFaults(LinkFaults):
    """The directed faults of one run."""

    def __init__(
        self,
        world: World,
        sites: TwoSites,
        ledger: LinkLedger,
        operators: Sequence[Operator],
        *,
        faults_max: int | None,
    ) -> None:
        super().__init__(world, sites, faults_max=faults_max)
        self._ledger = ledger
        self._operators = operators
        self._has_ended = False

    @property
    def is_over(self) -> bool:
        """Whether the story has come to its end."""
        return self._has_ended

    async def _work(self) -> None:
        story = self._sites.plan.story
        self.counts[story.value] += 1
        if self._faults_max is None or self._faults_max > 0:
            await self._stories()[story]()
        self._has_ended = True

    def _stories(self) -> Mapping[Story, Callable[[], Awaitable[None]]]:
        return {
            Story.LAG: self._lag_story,
            Story.VOWS: self._vows,
            Story.LATE: self._late,
            Story.TWICE: self._twice,
            Story.FIRST_COPY: self._first_copy,
            Story.STALE_MIRROR: self._stale_mirror,
            Story.TWO_OPERATORS: self._two_operators,
            Story.DEGRADED: self._degraded,
            Story.SUCCESSOR: self._successor,
        }

    # --- the stories

    async def _lag_story(self) -> None:
        active = await self._beginning()
        await self._fall_behind(active)
        self._lose(active)
        await self._promote(other(active), may_die=True)
        await self._wait(0.0, 2.0)
        await self._come_back(active)

    async def _vows(self) -> None:
        """The arbiter knows for how long the site is absent, and not that it goes on by vows. Then
        the site contacts the promoted one before it reaches the arbiter.
        """
        active = await self._beginning()
        to_arbiter = both_ways(self._sites.hosts(active), ARBITERS)
        self._sever(to_arbiter, f"site {active} from the arbiter")
        await self._world.pause(self._sites.plan.lease_ms / 1000 + self._world.chance.uniform(2.5, 5.0))
        self._sever(self._around(active), f"site {active} is lost to all but clients")
        await self._promote(other(active))
        self._join(self._around(active) - to_arbiter, f"site {active} comes back, but not to the arbiter")
        await self._wait(1.0, 4.0)
        self._join(to_arbiter, f"site {active} reaches the arbiter")

    async def _late(self) -> None:
        active = await self._beginning()
        leader = await self._next_append(active)
        self._sever(self._around(active), f"site {active} is lost to all but clients")
        await self._world.pause(IN_FLIGHT_S)
        process = leader.process
        assert process is not None
        self._world.tell(f"{process.name} is paused")
        process.pause()
        await self._promote(other(active))
        await self._until(lambda: bool(self._ledger.permit_holders(other(active))), PROMOTED_S_MAX)
        self._resume(process)
        await self._wait(0.5, 2.0)
        self._join(self._around(active), f"site {active} comes back")

    async def _twice(self) -> None:
        """When the other site is lost, the returning site has records of its own, and no mirror
        that would quarantine them. It must not promote itself; an operator who accepts the loss may
        promote it.
        """
        active = await self._beginning()
        await self._fall_behind(active)
        self._lose(active)
        await self._promote(other(active), may_die=True)
        self._sites.mirrors[active].kill()
        self._bring_back(active, with_mirror=False)
        await self._wait(2.0, 4.0)
        self._lose(other(active))
        if self._sites.plan.mode is FailoverMode.AUTOMATIC:
            await self._until(lambda: self._is_promoted(active), TEMPTED_S)
        else:
            await self._promote(active, accepts_loss=True)
            await self._wait(0.0, 2.0)
        self._bring_back(other(active))
        self._sites.mirrors[active].start()

    async def _first_copy(self) -> None:
        """The line is too slow for the first copy."""
        lines = both_ways((self._sites.mirrors["b"].host,), self._sites.hosts("a"))
        if self._world.chance.random() < 0.5:
            await self._until(lambda: self._operators[0].has_link, PROMOTED_S_MAX)
            await self._wait(0.0, 0.5)
        self._sever(lines, "the mirror into b from site a")
        await self._until(lambda: self._operators[0].has_link and self._is_open(), PROMOTED_S_MAX)
        await self._wait(0.0, 1.0)
        self._lose("a")
        await self._until(lambda: self._is_promoted("b"), TEMPTED_S)
        self._bring_back("a")
        self._join(lines, "the mirror into b reaches site a")

    async def _stale_mirror(self) -> None:
        """The mirror's requests to its own site are late: they arrive when the site stores the
        account of its promotion.
        """
        active = await self._beginning()
        standby = other(active)
        await self._next_append(active)
        line = {(self._sites.mirrors[standby].host, node.host) for node in self._sites.of_site(standby)}
        self._sever(line, f"the mirror into {standby} from its own brokers")
        await self._wait(0.1, 0.3)
        self._lose(active)
        self._ledger.on_account = lambda site: self._join(line, "the mirror's line") if site == standby else None
        await self._promote(standby)
        self._ledger.on_account = lambda _: None
        self._join(line, "the mirror's line")
        await self._come_back(active)

    async def _two_operators(self) -> None:
        """One operator's report to the former site arrives after another operator has made that
        site active again.
        """
        active = await self._beginning()
        first, second = self._operators[1], self._operators[0]
        line = both_ways((first.host,), self._sites.hosts(active))
        first.on_step = lambda step: self._sever(line, "the operator's line") if step == "promote" else None
        first.move(other(active), is_planned=True)
        await self._until(lambda: self._is_known_at(active, other(active)), PROMOTED_S_MAX)
        until_s = self._world.loop.now_s + PROMOTED_S_MAX
        while not self._is_promoted(active) and self._world.loop.now_s < until_s:
            if not second.is_busy:
                second.move(active, is_planned=True)
            await self._world.pause(LOOK_S)
        self._join(line, "the operator's line")
        await self._until(lambda: not (first.is_busy or second.is_busy), PROMOTED_S_MAX)

    async def _degraded(self) -> None:
        """The leader stops waiting for a standby that lags, and is lost."""
        active = await self._beginning()
        line = both_ways((self._sites.mirrors[other(active)].host,), self._sites.hosts(active))
        self._sever(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._until(lambda: self._lacks_acknowledged(other(active)), PROMOTED_S_MAX)
        self._lose(active)
        await self._until(lambda: self._is_promoted(other(active)), TEMPTED_S)
        self._join(line, f"the line between the mirror into {other(active)} and site {active}")
        await self._come_back(active)

    async def _successor(self) -> None:
        """The controller of the promoted site ends with its broker, before or after it has stored
        the states of the raised partitions. Its successor elects leaders for those that this broker
        led. Often an operator moves the link back at once, so that the successor finds a raise at a
        passive site.
        """
        active = await self._beginning()
        promoted, chance = other(active), self._world.chance
        self._ledger.on_raise = lambda site: self._end_controller(site, chance) if site == promoted else None
        if chance.random() < 0.5:
            self._lose(active)
            await self._promote(promoted)
            await self._come_back(active)
            return
        for site in (promoted, active):
            self._operators[0].move(site, is_planned=True)
            await self._until(lambda: not self._operators[0].is_busy, PROMOTED_S_MAX)

    def _end_controller(self, site: str, chance: Random) -> None:
        """The broker that hosts the site's controller ends within some seconds, once."""
        self._ledger.on_raise = lambda _: None
        node = self._sites.nodes[self._controller_of(site)]
        delay_s = chance.choice((0.02, chance.uniform(0.0, RAISED_S), chance.uniform(RAISED_S, STORED_S_MAX)))
        self._later(delay_s, node.kill)
        self._later(delay_s + chance.uniform(1.0, 4.0), node.start)

    def _controller_of(self, site: str) -> int:
        found = self._world.ensembles[SITES.index(site)].tree.nodes[znodes.CONTROLLER]
        return decode_controller(found.value).controller_id

    def _lacks_acknowledged(self, site: str) -> bool:
        last = self._ledger.acknowledged[-1]
        return not any(has_batch(log, last.base_offset, last.body) for log in self._ledger.logs(last.place, site))

    def _is_known_at(self, site: str, active: str) -> bool:
        record = self._ledger.record_at(site)
        return record is not None and record.active_site == active

    # --- their steps

    async def _beginning(self) -> str:
        """The active site, after a while without faults."""
        await self._wait(0.2, 1.0)
        return self.active_site()

    async def _fall_behind(self, active: str) -> None:
        """The mirror does not follow for a while."""
        chance = self._world.chance
        mirror = self._sites.mirrors[other(active)]
        lines = both_ways((mirror.host,), self._sites.hosts(active))
        match chance.choice(("nothing", "cut", "cut", "slow", "killed", "paused")):
            case "cut":
                self._sever(lines, f"the line between the mirror into {other(active)} and site {active}")
            case "slow":
                self._world.tell(f"the line between the mirror into {other(active)} and site {active} is slow")
                self._world.network.slow.update(dict.fromkeys(lines, 1.0))
            case "killed":
                mirror.kill()
                self._later(chance.uniform(1.0, 8.0), mirror.start)
            case "paused":
                self._pause_process(mirror.process)
        await self._wait(0.2, 3.0)

    def _lose(self, site: str) -> None:
        """The site is lost to all, often but its clients, and often with all of its processes."""
        self._sever(self._around(site), f"site {site} is lost to all but clients")
        if self._world.chance.random() < 0.3:
            self._later(self._world.chance.uniform(0.0, 1.0), lambda: self._kill_all(site))

    def _kill_all(self, site: str) -> None:
        for one in self._all_of(site):
            one.kill()

    def _all_of(self, site: str) -> list[Node | MirrorHost]:
        return [*self._sites.of_site(site), self._sites.mirrors[site]]

    async def _promote(self, site: str, *, may_die: bool = False, accepts_loss: bool = False) -> None:
        """Wait until the site is promoted: by itself, or by an operator whose command may be
        interrupted.
        """
        plan, chance = self._sites.plan, self._world.chance
        operator = self._operators[0]
        patience_s = chance.choice((0.0, 3 * plan.lease_ms / 1000 + 6)) if plan.mode is FailoverMode.AUTOMATIC else 0.0
        until_s = self._world.loop.now_s + PROMOTED_S_MAX
        await self._until(lambda: self._is_promoted(site), patience_s)
        while not self._is_promoted(site) and self._world.loop.now_s < until_s:
            if not operator.is_busy:
                await self._wait(0.1, 1.0)
                operator.move(site, is_planned=False, accepts_loss=accepts_loss)
                if may_die and chance.random() < 0.3:
                    operator.die_later()
            await self._world.pause(LOOK_S)

    def _is_promoted(self, site: str) -> bool:
        record = self._ledger.record_at(site)
        return record is not None and record.active_site == site and self._is_open()

    def _is_open(self) -> bool:
        """Whether the arbiter has opened the epoch of the newest record."""
        found = self._world.ensembles[-1].tree.nodes.get(arbiter_znodes.record_path(LINK))
        held = None if found is None else arbiter_znodes.decode_record(LINK, found.value)
        epochs = [record.epoch for site in SITES if (record := self._ledger.record_at(site)) is not None]
        return held is not None and held.is_open and held.epoch == max(epochs, default=0)

    async def _come_back(self, site: str) -> None:
        """The lost site returns; its mirror may start later, and processes may be killed during the
        reinstatement.
        """
        chance = self._world.chance
        mirror = self._sites.mirrors[site]
        is_mirror_late = chance.random() < 0.5
        if is_mirror_late:
            mirror.kill()
        self._bring_back(site, with_mirror=not is_mirror_late)
        await self._wait(0.0, 3.0)
        mirror.start()
        for _ in range(chance.choice((0, 0, 1, 2))):
            victim = chance.choice(self._all_of(site))
            await self._wait(0.0, 1.0)
            victim.kill()
            await self._wait(0.0, 1.0)
            victim.start()

    def _bring_back(self, site: str, *, with_mirror: bool = True) -> None:
        self._join(self._around(site), f"site {site} comes back")
        for one in self._all_of(site):
            if with_mirror or one is not self._sites.mirrors[site]:
                one.start()

    async def _next_append(self, site: str) -> Node:
        """The leader of the site that appends next, in the step in which it does."""
        appended: list[int] = []
        self._ledger.on_append = appended.append
        await self._until(lambda: any(site_of(node) == site for node in appended), PROMOTED_S_MAX, look_s=0.0005)
        self._ledger.on_append = lambda _: None
        found = next((node for node in appended if site_of(node) == site), self._sites.plan.node_ids(site)[0])
        return self._sites.nodes[found]

    def _sever(self, pairs: Pairs, story: str) -> None:
        self.counts["cut"] += 1
        self._world.tell(f"cut: {story}")
        self._world.network.cuts |= pairs

    def _join(self, pairs: Pairs, story: str) -> None:
        self._world.tell(f"mended: {story}")
        self._world.network.cuts -= pairs
        self._world.network.changed()

    async def _until(self, is_reached: Callable[[], bool], seconds: float, look_s: float = LOOK_S) -> None:
        until_s = self._world.loop.now_s + seconds
        while not is_reached() and self._world.loop.now_s < until_s:
            await self._world.pause(look_s)

    async def _wait(self, shortest_s: float, longest_s: float) -> None:
        await self._world.pause(self._world.chance.uniform(shortest_s, longest_s))


def both_ways(some: Sequence[str], others: Sequence[str]) -> Pairs:
    """Both directions between two groups of hosts."""
    there = {(one, another) for one in some for another in others}
    return there | {(another, one) for one, another in there}
