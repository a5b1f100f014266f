"""The faults of a run with their times and durations: a random schedule of the faults that the site
promises to survive.

Processes are killed, paused and resumed, or stopped; hosts lose power; links are interrupted in one
or both directions, slow or reset; nodes lose only ZooKeeper; its servers lag, or the ensemble is
unavailable. Leaders and the active controller are struck more often than chance would, also by slow
lines, on which old records and old writes arrive late. Power is lost only where nothing is promised
away by it: with a flush before each acknowledgement at any time, else once, while every partition
has another replica in sync (a last replica in sync that forgets is KIP-966, which is not done).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.sim.fault_schedule import FaultSchedule, Kind
from tests.sim.ledger import Ledger
from tests.sim.node import Node
from tests.sim.virtual_loop import Process
from tests.sim.world import World
from tests.sim.zookeeper_ensemble import SERVERS
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import decode_controller
from wire.znodes.topic_znodes import decode_partition_state

LONG_S: Final = 5.0
SHORT_S: Final = 0.4
"""Faults last shorter or longer than ZooKeeper's session timeout (2 s)."""


class Faults(FaultSchedule):
    """The faults of one site."""

    short_s, long_s, short_share = SHORT_S, LONG_S, 0.5

    def __init__(
        self, world: World, nodes: Mapping[int, Node], ledger: Ledger, *, calm_s: float, faults_max: int | None
    ) -> None:
        super().__init__(world, calm_s=calm_s, faults_max=faults_max)
        self._nodes = nodes
        self._ledger = ledger
        self._has_lost_power = False

    def _kinds(self) -> tuple[tuple[int, Kind], ...]:
        return (
            (6, self._kill),
            (3, self._pause),
            (2, self._stop),
            (2, self._lose_power),
            (3, self._cut),
            (3, self._isolate),
            (3, self._cut_from_zookeeper),
            (2, self._reset),
            (4, self._slow),
            (1, self._lag),
            (1, self._out),
        )

    def _victim(self) -> Node | None:
        """A running node: the active controller, some leader, or any."""
        chance = self._world.chance
        tree = self._world.ensemble.tree
        wanted = chance.choice(tuple(self._nodes))
        draw = chance.random()
        if draw < 0.25 and (office := tree.nodes.get(znodes.CONTROLLER)) is not None:
            wanted = decode_controller(office.value).controller_id
        elif draw < 0.6 and self._ledger.leaders:
            wanted = next(reversed(self._ledger.leaders.values()))
        node = self._nodes[wanted]
        return node if node.is_running and node.process is not None and not node.process.is_paused else None

    # --- processes

    def _kill(self) -> bool:
        node = self._victim()
        if node is None:
            return False
        node.kill()
        self._later(self._how_long_s(), node.start)
        return True

    def _stop(self) -> bool:
        node = self._victim()
        if node is None or node.running is None or not node.running.is_open:
            return False
        node.stop()
        self._later(self._how_long_s() + 1.0, lambda: self._restart(node))
        return True

    def _restart(self, node: Node) -> None:
        node.kill()
        node.start()

    def _lose_power(self) -> bool:
        node = self._victim()
        may = self._ledger.must_flush or not (self._has_lost_power or self._is_last_in_sync(node))
        if node is None or not may:
            return False
        self._has_lost_power = True
        node.lose_power()
        self._later(self._how_long_s() + 0.3, node.start)
        return True

    def _is_last_in_sync(self, node: Node | None) -> bool:
        tree = self._world.ensemble.tree
        for path, found in tree.nodes.items():
            if path.endswith("/state") and node is not None:
                _, _, _, topic, _, index, _ = path.split("/")
                state = decode_partition_state(topic, int(index), found.value)
                others = [other for other in state.isr if other != node.node_id]
                if node.node_id in state.isr and not others:
                    return True
        return False

    def _pause(self) -> bool:
        node = self._victim()
        if node is None or node.process is None:
            return False
        process = node.process
        self._world.tell(f"{node.host} is paused")
        process.pause()
        self._later(self._how_long_s(), lambda: self._resume(process))
        return True

    def _resume(self, process: Process) -> None:
        if process.is_alive and process.is_paused:
            self._world.tell(f"{process.name} goes on")
            process.resume()

    # --- network

    def _hosts(self) -> list[str]:
        return [*(node.host for node in self._nodes.values()), "c1"]

    def _cut_pairs(self, pairs: set[tuple[str, str]], story: str) -> bool:
        network = self._world.network
        new = pairs - network.cuts
        if not new:
            return False
        self._world.tell(story)
        network.cuts |= new
        self._later(self._how_long_s(), lambda: self._mend(new))
        return True

    def _mend(self, pairs: set[tuple[str, str]]) -> None:
        self._world.tell(f"mended: {_shown(pairs)}")
        self._world.network.cuts -= pairs
        self._world.network.changed()

    def _cut(self) -> bool:
        one, another = self._world.chance.sample(self._hosts(), 2)
        pairs = {(one, another)} if self._world.chance.random() < 0.4 else {(one, another), (another, one)}
        return self._cut_pairs(pairs, f"cut: {_shown(pairs)}")

    def _isolate(self) -> bool:
        node = self._victim()
        if node is None:
            return False
        others = [host for host in (*self._hosts(), *SERVERS) if host != node.host]
        kept = set(SERVERS) if self._world.chance.random() < 0.4 else set()
        pairs = {pair for host in others if host not in kept for pair in ((host, node.host), (node.host, host))}
        if self._world.chance.random() < 0.3:
            pairs = {pair for pair in pairs if pair[0] == node.host}
        return self._cut_pairs(pairs, f"{node.host} is isolated{' but for ZooKeeper' if kept else ''}: {_shown(pairs)}")

    def _cut_from_zookeeper(self) -> bool:
        node = self._victim()
        if node is None:
            return False
        pairs = {pair for server in SERVERS for pair in ((server, node.host), (node.host, server))}
        return self._cut_pairs(pairs, f"{node.host} is cut off from ZooKeeper")

    def _reset(self) -> bool:
        one, another = self._world.chance.sample([*self._hosts(), *SERVERS], 2)
        self._world.tell(f"connections from {one} to {another} break")
        self._world.network.reset_between(one, another)
        return True

    def _slow(self) -> bool:
        one, another = self._world.chance.sample([*self._hosts(), *SERVERS], 2)
        # a leader's records and a controller's writes that arrive late endanger most
        node = self._victim()
        if node is not None and node.host != another:
            one = node.host
        slow = self._world.network.slow
        if (one, another) in slow:
            return False
        slow[one, another] = self._world.chance.choice((0.05, 0.3, 1.0))
        self._world.tell(f"slow: {one} to {another} takes up to {slow[one, another]} s")
        self._later(self._how_long_s(), lambda: slow.pop((one, another), None))
        return True

    # --- ZooKeeper

    def _lag(self) -> bool:
        server = self._world.chance.choice(self._world.ensemble.servers)
        server.lag_s = self._world.chance.choice((0.05, 0.5, 1.5))
        self._world.tell(f"{server.name} lags up to {server.lag_s} s")
        self._later(self._how_long_s(), lambda: setattr(server, "lag_s", 0.0))
        return True

    def _out(self) -> bool:
        ensemble = self._world.ensemble
        if not ensemble.is_serving:
            return False
        self._world.tell("ZooKeeper is out")
        ensemble.go_out()
        self._later(self._how_long_s(), self._back)
        return True

    def _back(self) -> None:
        if not self._world.ensemble.is_serving:
            self._world.tell("ZooKeeper is back")
            self._world.ensemble.come_back()

    # --- the end

    def heal(self) -> None:
        """Undo all faults."""
        self._process.kill()
        world = self._world
        world.tell("everything is healed")
        world.network.cuts.clear()
        world.network.slow.clear()
        for server in world.ensemble.servers:
            server.lag_s = 0.0
        if not world.ensemble.is_serving:
            world.ensemble.come_back()
        for node in self._nodes.values():
            if node.process is not None and node.process.is_paused:
                node.process.resume()
            if node.is_stopping:
                node.kill()
            node.start()
        world.network.changed()


def _shown(pairs: set[tuple[str, str]]) -> str:
    both = {pair for pair in pairs if pair[::-1] in pairs}
    shown = [f"{one}-{another}" for one, another in sorted(both) if one < another]
    return " ".join([*shown, *(f"{one}>{another}" for one, another in sorted(pairs - both))])
