"""All clients of a seed that is about transactions, from their start to the checks at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.sim.clients import Router
from tests.sim.coordinator_client import OffsetCommitter
from tests.sim.ledger import Ledger
from tests.sim.node import Node
from tests.sim.stored_logs import StoredLog
from tests.sim.transaction_ledger import Place, TransactionLedger
from tests.sim.transactional import FIRST, SECOND, CommittedReader, TransactionalProducer
from tests.sim.virtual_loop import Process
from tests.sim.world import World

LONG_TIMEOUT_MS = 120_000
"""Longer than a run."""
SHORT_TIMEOUT_MS = 2_500


class TransactionalClients:
    """The transactional clients of one run."""

    def __init__(self, world: World, ledger: Ledger, process: Process, router: Router, nodes: tuple[int, ...]) -> None:
        self.ledger = TransactionLedger(world, ledger)
        self._world = world
        self._consumed = ledger
        self._process = process
        self._router = router
        self._nodes = nodes
        self._producers: list[TransactionalProducer] = []
        self._readers: list[CommittedReader] = []
        self._committers: list[OffsetCommitter] = []

    def start(self, places: tuple[Place, ...]) -> None:
        """Two or three producers, a reader for each partition, and a group that commits."""
        chance = self._world.chance
        for number in range(chance.choice((2, 2, 3))):
            producer = TransactionalProducer(
                self._world,
                self.ledger,
                self._process,
                self._nodes,
                name=f"tx{number}",
                places=places,
                protocol=chance.choice((FIRST, SECOND, SECOND)),
                timeout_ms=chance.choice((LONG_TIMEOUT_MS, LONG_TIMEOUT_MS, SHORT_TIMEOUT_MS)),
                pace_s=chance.choice((0.01, 0.02, 0.1)),
            )
            self._producers.append(producer)
            self._process.spawn(producer.run(), name=producer.name)
        for topic, index in places:
            reader = CommittedReader(self._world, self._consumed, self._router, topic, index, transactions=self.ledger)
            self._readers.append(reader)
            self._process.spawn(reader.run(), name=f"committed reader of {topic}-{index}")

        committer = OffsetCommitter(
            self._world, self._consumed, self._router, self._nodes, "group", places[0], chance.choice((0.05, 0.3))
        )
        self._committers.append(committer)
        self._process.spawn(committer.run(), name="committer")

    def finish(self) -> None:
        """No more transactions than those that have begun."""
        for producer in self._producers:
            producer.is_wanted = False
        for committer in self._committers:
            committer.is_wanted = False

    def missing(self, nodes: Mapping[int, Node]) -> list[str]:
        """The conditions that are not met yet."""
        if self.ledger.is_waived:
            return []
        missing = [
            f"{producer.name} waits for the end of a transaction, or for its group to have it"
            for producer in self._producers
            if producer.is_waiting
        ]
        missing += [
            f"{one.group} waits for a commit, or to find {one.acknowledged} committed"
            for one in self._committers
            if not one.is_idle
        ]
        for reader in self._readers:
            log = _longest(nodes, (reader.topic, reader.index))
            if reader.position < log.end:
                missing.append(
                    f"committed records of {reader.topic}-{reader.index} are read up to {reader.position} of {log.end}"
                )
        return missing

    def unsound_endings(self, nodes: Mapping[int, Node]) -> Iterator[tuple[str, str]]:
        """Invariant and story for each that does not hold at the end."""
        places = [(reader.topic, reader.index) for reader in self._readers]
        yield from self.ledger.unsound_endings({place: _longest(nodes, place) for place in places})


def _longest(nodes: Mapping[int, Node], place: Place) -> StoredLog:
    found = [node.disk.logs[place] for node in nodes.values() if place in node.disk.logs]
    return max(found, key=lambda log: log.end)
