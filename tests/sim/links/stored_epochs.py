"""The leader epochs that a site has in force by what is stored: raises count from the moment at
which they are stored, before the states of their partitions have them (decision 170).
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.zookeeper.nodes import CheckNode, DeleteNode, TransactionStep
from tests.sim.world import World
from tests.sim.zookeeper_tree import Tree
from wire.znodes import layout as znodes
from wire.znodes.controller_znodes import EPOCH_RAISES, decode_epoch_raise
from wire.znodes.topic_znodes import decode_partition_state, decode_topic

Key = tuple[bytes, int]
"""Topic id and partition."""


class StoredEpochs:
    """The leader and the leader epoch in force of each partition of one site."""

    def __init__(self, world: World, site: str, on_raise: Callable[[], object]) -> None:
        """`on_raise` is called after each raise that is stored."""
        self._world = world
        self._site = site
        self._on_raise = on_raise
        self._in_force: dict[Key, tuple[int, int]] = {}

    def check(self, tree: Tree, step: TransactionStep) -> None:
        """Check one stored step: a leader epoch never goes back, and it has one leader."""
        if isinstance(step, CheckNode | DeleteNode):
            return
        if step.path.startswith(f"{EPOCH_RAISES}/"):
            self._raise(tree, *decode_epoch_raise(step.path.rpartition("/")[2], step.value))
        elif step.path.startswith(f"{znodes.TOPICS}/") and step.path.endswith("/state"):
            _, _, _, topic, _, index, _ = step.path.split("/")
            self._check_state(tree, topic, int(index), step.value)

    def _raise(self, tree: Tree, floor: int, topics: frozenset[str]) -> None:
        ids = {decode_topic(name, tree.nodes[znodes.topic_path(name)].value).topic_id for name in topics}
        for key, (epoch, leader) in self._in_force.items():
            if key[0] in ids and epoch < floor:
                self._in_force[key] = floor, leader
        self._on_raise()

    def _check_state(self, tree: Tree, topic: str, index: int, value: bytes) -> None:
        state = decode_partition_state(topic, index, value)
        key = decode_topic(topic, tree.nodes[znodes.topic_path(topic)].value).topic_id, index
        epoch, leader = self._in_force.get(key, (-1, state.leader))
        if state.leader_epoch < epoch:
            self._violate("epochs-grow", f"{topic}-{index} goes from epoch {epoch} to {state}")
        if state.leader_epoch == epoch and state.leader != leader:
            self._violate("one-leader-per-epoch", f"{topic}-{index} has leader {leader} in epoch {epoch}, then {state}")
        self._in_force[key] = state.leader_epoch, state.leader

    def _violate(self, invariant: str, text: str) -> None:
        self._world.violate(invariant, f"{self._site}: {text}")
