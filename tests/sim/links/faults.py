"""The faults between and inside two sites: a random schedule from the seed.

Brokers and mirrors are killed, paused and started again; hosts are disconnected from each other in
one direction or both, slow, or have their connections reset; a whole site loses its network or all
of its processes; the arbiter, or a site's ZooKeeper, is out or cannot be reached from one site.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.fault_schedule import FaultSchedule, Kind
from tests.sim.links.plan import ARBITERS, OPERATOR_HOSTS, SITES, other
from tests.sim.links.world_of_two import MirrorHost, TwoSites
from tests.sim.node import CLIENT_HOST, Node
from tests.sim.virtual_loop import Process
from tests.sim.world import World
from tests.sim.zookeeper_ensemble import Ensemble

SHORT_S: Final = 0.6
LONG_S: Final = 8.0
"""Faults last shorter or longer than a lease."""
LOST_S: Final = 14.0
"""How long a lost site is away at most: longer than a failover from it takes."""

Pairs = set[tuple[str, str]]


class LinkFaults(FaultSchedule):
    """The faults of two sites."""

    short_s, long_s, short_share = SHORT_S, LONG_S, 0.4

    def __init__(self, world: World, sites: TwoSites, *, faults_max: int | None) -> None:
        super().__init__(world, calm_s=sites.plan.calm, faults_max=faults_max)
        self._sites = sites
        self.on_dark: Callable[[str], object] = lambda _: None
        """Called with a site that no other host reaches now."""
        self.active_site: Callable[[], str] = lambda: SITES[0]
        self._quiet_s = 0.0
        """Time (s) without further faults after the last one."""
        self.lost_until_s = 0.0
        """Until then the active site is lost."""

    @property
    def is_over(self) -> bool:
        """Whether everything may be healed now."""
        return self._world.loop.now_s >= self.lost_until_s

    def _kinds(self) -> tuple[tuple[int, Kind], ...]:
        return (
            (3, self._kill),
            (3, self._pause),
            (2, self._kill_site),
            (2, self._darken_site),
            (5, self._lose_active_site),
            (2, self._part_sites),
            (2, self._cut_from_arbiter),
            (2, self._kill_mirror),
            (1, self._pause_mirror),
            (3, self._cut),
            (2, self._reset),
            (2, self._slow),
            (1, self._lag),
            (1, self._out),
        )

    async def _settle(self) -> None:
        await self._world.pause(self._quiet_s)
        self._quiet_s = 0.0

    # --- processes

    def _node(self) -> Node | None:
        node = self._world.chance.choice(tuple(self._sites.nodes.values()))
        return node if node.is_running and node.process is not None and not node.process.is_paused else None

    def _kill(self) -> bool:
        node = self._node()
        if node is None:
            return False
        node.kill()
        self._later(self._how_long_s(), node.start)
        return True

    def _pause(self) -> bool:
        node = self._node()
        return node is not None and self._pause_process(node.process)

    def _pause_process(self, process: Process | None) -> bool:
        if process is None or not process.is_alive or process.is_paused:
            return False
        self._world.tell(f"{process.name} is paused")
        process.pause()
        self._later(self._how_long_s(), lambda: self._resume(process))
        return True

    def _resume(self, process: Process) -> None:
        if process.is_alive and process.is_paused:
            self._world.tell(f"{process.name} goes on")
            process.resume()

    def _kill_site(self) -> bool:
        site = self._world.chance.choice(SITES)
        victims: list[Node | MirrorHost] = [*self._sites.of_site(site), self._sites.mirrors[site]]
        running = [victim for victim in victims if victim.is_running]
        if not running:
            return False
        self._world.tell(f"all processes of site {site} are killed")
        delay_s = self._how_long_s()
        for victim in running:
            victim.kill()
            self._later(delay_s, victim.start)
        return True

    def _mirror(self) -> MirrorHost:
        return self._sites.mirrors[self._world.chance.choice(SITES)]

    def _kill_mirror(self) -> bool:
        mirror = self._mirror()
        if not mirror.is_running:
            return False
        mirror.kill()
        self._later(self._how_long_s(), mirror.start)
        return True

    def _pause_mirror(self) -> bool:
        return self._pause_process(self._mirror().process)

    # --- network

    def _hosts(self) -> list[str]:
        return [*(host for site in SITES for host in self._sites.hosts(site)), *ARBITERS, *OPERATOR_HOSTS, CLIENT_HOST]

    def _cut_pairs(self, pairs: Pairs, story: str, duration_s: float | None = None) -> bool:
        network = self._world.network
        new = pairs - network.cuts
        if not new:
            return False
        self._world.tell(story)
        network.cuts |= new
        self._later(duration_s or self._how_long_s(), lambda: self._mend(new, story))
        return True

    def _mend(self, pairs: Pairs, story: str) -> None:
        self._world.tell(f"mended: {story}")
        self._world.network.cuts -= pairs
        self._world.network.changed()

    def _between(self, some: tuple[str, ...], others: tuple[str, ...], name: str) -> bool:
        """Cut two groups of hosts from each other, in one direction or both."""
        there = {(one, another) for one in some for another in others}
        back = {(another, one) for one, another in there}
        draw = self._world.chance.random()
        if draw < 0.25:
            return self._cut_pairs(there, f"cut: {name}, one way")
        if draw < 0.5:
            return self._cut_pairs(back, f"cut: {name}, the other way")
        return self._cut_pairs(there | back, f"cut: {name}")

    def _darken_site(self) -> bool:
        site = self._world.chance.choice(SITES)
        own = self._sites.hosts(site)
        others = tuple(host for host in self._hosts() if host not in own)
        if self._world.chance.random() < 0.6:
            others = tuple(host for host in others if host != CLIENT_HOST)
        if not self._between(own, others, f"site {site} from all others"):
            return False
        self.on_dark(site)
        return True

    def _around(self, site: str) -> Pairs:
        """Both directions between the site and all others but clients."""
        own = self._sites.hosts(site)
        others = tuple(host for host in self._hosts() if host not in own and host != CLIENT_HOST)
        there = {(one, another) for one in own for another in others}
        return there | {(another, one) for one, another in there}

    def _lose_active_site(self) -> bool:
        """Only clients reach the active site, for long enough to fail over from it, and nothing
        else goes wrong meanwhile.
        """
        site = self.active_site()
        pairs = self._around(site)
        lost_s = self._world.chance.uniform(LONG_S, LOST_S)
        if not self._cut_pairs(pairs, f"site {site} is lost to all but clients", lost_s):
            return False
        self._quiet_s = lost_s
        self.lost_until_s = self._world.loop.now_s + lost_s
        self.on_dark(site)
        return True

    def _part_sites(self) -> bool:
        return self._between(self._sites.hosts("a"), self._sites.hosts("b"), "site a from site b")

    def _cut_from_arbiter(self) -> bool:
        site = self._world.chance.choice(SITES)
        return self._between(self._sites.hosts(site), ARBITERS, f"site {site} from the arbiter")

    def _cut(self) -> bool:
        one, another = self._world.chance.sample(self._hosts(), 2)
        return self._between((one,), (another,), f"{one} from {another}")

    def _reset(self) -> bool:
        one, another = self._world.chance.sample(self._hosts(), 2)
        self._world.tell(f"connections from {one} to {another} break")
        self._world.network.reset_between(one, another)
        return True

    def _slow(self) -> bool:
        site = self._world.chance.choice(SITES)
        far = self._sites.hosts(other(site)) if self._world.chance.random() < 0.6 else ARBITERS
        seconds = self._world.chance.choice((0.05, 0.3, 1.0))
        pairs = [(one, another) for one in self._sites.hosts(site) for another in far]
        slow = self._world.network.slow
        if any(pair in slow for pair in pairs):
            return False
        self._world.tell(f"slow: site {site} to {far[0]} and its like takes up to {seconds} s")
        slow.update(dict.fromkeys(pairs, seconds))
        self._later(self._how_long_s(), lambda: [slow.pop(pair, None) for pair in pairs])
        return True

    # --- ZooKeeper

    def _lag(self) -> bool:
        server = self._world.chance.choice(self._world.ensembles[-1].servers)
        server.lag_s = self._world.chance.choice((0.05, 0.5, 1.5))
        self._world.tell(f"{server.name} lags up to {server.lag_s} s")
        self._later(self._how_long_s(), lambda: setattr(server, "lag_s", 0.0))
        return True

    def _out(self) -> bool:
        ensemble = self._world.chance.choice(self._world.ensembles)
        if not ensemble.is_serving:
            return False
        self._world.tell(f"the ZooKeeper of {ensemble.servers[0].name} is out")
        ensemble.go_out()
        self._later(self._how_long_s(), lambda: self._back(ensemble))
        return True

    def _back(self, ensemble: Ensemble) -> None:
        if not ensemble.is_serving:
            self._world.tell(f"the ZooKeeper of {ensemble.servers[0].name} is back")
            ensemble.come_back()

    # --- the end

    def heal(self) -> None:
        """All faults have ended."""
        self._process.kill()
        world = self._world
        world.tell("everything is healed")
        world.network.cuts.clear()
        world.network.slow.clear()
        for ensemble in world.ensembles:
            for server in ensemble.servers:
                server.lag_s = 0.0
            self._back(ensemble)
        hosts: list[Node | MirrorHost] = [*self._sites.nodes.values(), *self._sites.mirrors.values()]
        for host in hosts:
            if host.process is not None and host.process.is_paused:
                host.process.resume()
            host.start()
        world.network.changed()
