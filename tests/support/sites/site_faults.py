"""Faults of a replicated site, begun and ended one by one or two at a time from a seed, with a
printable history.

A fault has a victim and a time that it lasts. Where the network only reaches from nodes to
ZooKeeper (`zookeeper_proxies.py`), kinds that cut anything else are left out. After any fault
`settle` brings everything back, so that a test can ask for progress and for whole replicas
afterwards.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Protocol

from tests.support.processes.processes import RunningProcess
from tests.support.processes.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from tests.support.sites.site_network import OUTSIDE

SESSION_TIMEOUT_S = 2.0
"""Of the site's nodes."""
SHORT_S = (0.1, 1.5)
LONG_S = (SESSION_TIMEOUT_S + 0.5, SESSION_TIMEOUT_S + 3.0)
OVERLAP_SHARE = 0.25
"""How often a second fault begins during the first."""
MEMBERS = ("zk1", "zk2", "zk3")

BlockedWays = list[tuple[str, str]]


class Network(Protocol):
    """The means that disconnect nodes (by id) and members of ZooKeeper from each other, one
    direction at a time.
    """

    def cut(self, cuts: Iterable[tuple[str, str]]) -> None:
        """From now on nothing gets from the first of each pair to the second."""
        ...

    def mend(self, cuts: Iterable[tuple[str, str]]) -> None:
        """Reconnect everything."""
        ...


class Fault(NamedTuple):
    """One fault: its kind, its victim, its duration, and the calls that begin and end it."""

    kind: str
    victim: str
    lasts_s: float
    begin: Callable[[], None]
    end: Callable[[], None]


@dataclass(slots=True)
class History:
    """The injected faults, and for how long producers got no acknowledgement each time."""

    seed: int
    lines: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    silences_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    began: float = field(default_factory=time.monotonic)

    def note(self, what: str) -> None:
        """Add a line."""
        self.lines.append(f"{time.monotonic() - self.began:8.2f} s  {what}")

    def reported(self) -> str:
        """The seed and all faults, as the report of a failed test."""
        return "\n".join([f"seed {self.seed}", *self.lines])

    def summary(self) -> str:
        """The number of faults of each kind, and the median and longest silence of a partition."""
        rows = [f"seed {self.seed}: {self.kinds.total()} faults"]
        rows += [f"  {count:4} {kind}" for kind, count in sorted(self.kinds.items())]
        rows.append("longest silence of a partition, by fault:")
        for kind, silences in sorted(self.silences_ms.items()):
            middle, last = median(silences), max(silences)
            rows.append(f"  {kind:<34} {len(silences):4} times  median {middle:6.0f} ms  longest {last:6.0f} ms")
        return "\n".join(rows)


class SiteFaults:
    """Faults of this site, its ZooKeeper ensemble and its network."""

    def __init__(
        self,
        site: ReplicatedSite,
        ensemble: ZooKeeperEnsemble,
        network: Network,
        *,
        is_network_whole: bool,
        topic: str,
        seed: int,
    ) -> None:
        self._site = site
        self._ensemble = ensemble
        self._network = network
        self._is_network_whole = is_network_whole
        self._topic = topic
        self._chance = random.Random(seed)
        self.history = History(seed)

    # --- victims

    def _victim(self) -> tuple[str, int]:
        """A role and the node that has it."""
        role = self._chance.choice(("leader", "follower", "controller"))
        leaders = self._site.leaders(self._topic)
        led = leaders[self._chance.choice(sorted(leaders))]
        if role == "controller":
            node = self._site.controller()
        elif role == "leader":
            node = led
        else:
            node = self._chance.choice([node for node in NODES if node != led])
        return (role, node) if node in NODES else ("broker", self._chance.choice(NODES))

    def _lasts(self, within_s: tuple[float, float]) -> float:
        return self._chance.uniform(*within_s)

    # --- kinds

    def _kill(self) -> Fault:
        role, number = self._victim()
        node = self._site.nodes[number]

        def revive() -> None:
            if not node.process.is_running:
                node.start_again()

        return Fault(f"kill -9 {role}", str(number), self._lasts(SHORT_S), node.process.kill, revive)

    def _pause(self) -> Fault:
        role, number = self._victim()
        process = self._site.nodes[number].process
        name, within_s = self._chance.choice((("pause", SHORT_S), ("long pause", LONG_S)))
        return Fault(f"{name} {role}", str(number), self._lasts(within_s), _sure(process.pause), _sure(process.resume))

    def _isolate(self) -> Fault:
        role, number = self._victim()
        others = [name for name in (*map(str, NODES), *MEMBERS, OUTSIDE) if name != str(number)]
        return self._cut(f"isolate {role}", str(number), self._ways(str(number), others))

    def _part_from_brokers(self) -> Fault:
        role, number = self._victim()
        others = [str(node) for node in NODES if node != number]
        return self._cut(f"part {role} from brokers", str(number), self._ways(str(number), others))

    def _part_from_zookeeper(self) -> Fault:
        role, number = self._victim()
        return self._cut(f"part {role} from ZooKeeper", str(number), self._ways(str(number), MEMBERS))

    def _ways(self, place: str, others: Iterable[str]) -> tuple[str, BlockedWays]:
        way = self._chance.choice(("both ways", "both ways", "outwards", "inwards"))
        outwards = [(place, other) for other in others] if way != "inwards" else []
        inwards = [(other, place) for other in others] if way != "outwards" else []
        return way, outwards + inwards

    def _cut(self, kind: str, victim: str, ways: tuple[str, BlockedWays]) -> Fault:
        network, (way, cuts) = self._network, ways
        return Fault(
            kind, f"{victim} {way}", self._lasts(LONG_S), lambda: network.cut(cuts), lambda: network.mend(cuts)
        )

    def _member(self) -> tuple[str, ZooKeeperProcess]:
        leader = self._ensemble.leader()
        member = self._chance.choice(self._ensemble.members)
        return ("leader" if member is leader else "member"), member

    def _kill_member(self) -> Fault:
        role, member = self._member()

        def revive() -> None:
            if not member.process.is_running:
                member.process.start()

        return Fault(f"kill -9 ZooKeeper {role}", member.server.name, self._lasts(SHORT_S), member.process.kill, revive)

    def _pause_member(self) -> Fault:
        role, member = self._member()
        process = member.process
        return Fault(
            f"pause ZooKeeper {role}", process.name, self._lasts(LONG_S), _sure(process.pause), _sure(process.resume)
        )

    def _isolate_member(self) -> Fault:
        role, member = self._member()
        place = MEMBERS[self._ensemble.members.index(member)]
        others = [name for name in (*map(str, NODES), *MEMBERS) if name != place]
        return self._cut(f"isolate ZooKeeper {role}", place, self._ways(place, others))

    def _pause_ensemble(self) -> Fault:
        processes = [member.process for member in self._ensemble.members]
        return Fault(
            "pause all of ZooKeeper",
            "all",
            self._lasts(self._chance.choice((SHORT_S, LONG_S))),
            _each(_sure(process.pause) for process in processes),
            _each(_sure(process.resume) for process in processes),
        )

    def any_fault(self) -> Fault:
        """A random fault of those that are possible here."""
        kinds = [self._kill, self._kill, self._pause, self._pause]
        kinds += [self._kill_member, self._pause_member, self._pause_ensemble, self._part_from_zookeeper]
        if self._is_network_whole:
            kinds += [self._isolate, self._isolate, self._part_from_brokers, self._isolate_member]
        else:
            kinds += [self._part_from_zookeeper, self._part_from_zookeeper]
        return self._chance.choice(kinds)()

    # --- running them

    def strike(self) -> str:
        """Begin a fault, or two that overlap, let them last, and end them. Returns their kinds."""
        first, second = self.any_fault(), None
        if self._chance.random() < OVERLAP_SHARE:
            second = self.any_fault()  # chosen before the first begins: brokers that are hit may not say who leads
        self._begin(first)
        self._last(first.lasts_s / 2)
        kinds = first.kind
        if second is not None:
            self._begin(second)
            self._last(second.lasts_s)
            self._end(second)
            kinds = "two at a time"
        self._last(first.lasts_s / 2)
        self._end(first)
        return kinds

    def _begin(self, fault: Fault) -> None:
        self.history.kinds[fault.kind] += 1
        self.history.note(f"{fault.kind} ({fault.victim}) for {fault.lasts_s:.2f} s")
        fault.begin()

    def _end(self, fault: Fault) -> None:
        fault.end()
        self.history.note(f"  {fault.kind} ({fault.victim}) ends")

    def _last(self, seconds: float) -> None:
        """Wait for the length of a fault. There is no condition to await."""
        time.sleep(seconds)

    def settle(self) -> None:
        """Wait until everything runs and serves."""
        for member in self._ensemble.members:
            member.wait_serving(60_000)
        for node in self._site.nodes.values():
            if not node.process.is_running:  # it was started while it could not reach ZooKeeper
                self.history.note(f"  node {node.node_id} is started again, it ended with {node.process.exit_code}")
                node.start_again()
            node.wait_ready(60_000)

    def may_go_on_unhealed(self) -> bool:
        """True if the next fault may come while replicas lag."""
        return self._chance.random() < 0.5


def _each(actions: Iterable[Callable[[], None]]) -> Callable[[], None]:
    chosen = tuple(actions)

    def act() -> None:
        for action in chosen:
            action()

    return act


def _sure(signal: Callable[[], None]) -> Callable[[], None]:
    """The signal, or nothing when the process is down by another fault."""

    def send() -> None:
        process: RunningProcess = signal.__self__  # type: ignore[attr-defined]
        if process.is_running:
            signal()

    return send
