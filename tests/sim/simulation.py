"""One seed from beginning to end: a site comes up, works under faults, is healed, and must become
whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from broker.replication.hosted_partition import SETTLING_MS
from tests.sim.administrator import Administrator
from tests.sim.clients import Consumer, Producer, Router, client_process
from tests.sim.endings import missing_for_wholeness, unsound_endings
from tests.sim.faults import Faults
from tests.sim.ledger import Ledger
from tests.sim.links.plan import LinkPlan
from tests.sim.links.simulation import LinkSimulation
from tests.sim.node import Node
from tests.sim.seed_run import Kind, Outcome, SeedRun
from tests.sim.transactional_clients import TransactionalClients
from tests.sim.world import World

SETTLE_S = 6.0
"""Time to come up and to create the topics before anything fails."""
HEAL_S_MAX = 40.0 + SETTLING_MS / 1000
"""Virtual time in which a healed site must be whole: sessions, backoffs and catching up, and
producers that a power cut made unknown.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choices that follow from a seed."""

    seed: int
    kind: Kind
    node_count: int
    min_insync: int
    flushes: bool
    faults_s: float
    calm: float

    @classmethod
    def of(cls, seed: int, kind: Kind) -> Plan:
        """The plan of a seed."""
        chance = Random(seed * 7919 + 13)
        return cls(
            seed=seed,
            kind=kind,
            node_count=chance.choice((3, 3, 4)),
            min_insync=chance.choice((1, 2, 2)),
            flushes=chance.random() < 0.3,
            faults_s=chance.choice((5.0, 10.0, 20.0)),
            calm=chance.choice((0.3, 0.7, 1.5)),
        )


class Simulation(SeedRun):
    """One run of a site."""

    def __init__(self, plan: Plan, *, is_told: bool = False, faults_max: int | None = None) -> None:
        self.plan = plan
        world = World(plan.seed, is_told=is_told)
        super().__init__(world)
        self.ledger = Ledger(world)
        self.ledger.must_flush = plan.flushes
        self.ledger.insync_replicas_min = plan.min_insync
        node_ids = tuple(range(1, plan.node_count + 1))
        self.nodes = {node_id: Node(world, self.ledger, node_id) for node_id in node_ids}
        for node in self.nodes.values():
            node.properties |= {"min.insync.replicas": str(plan.min_insync)}
            if plan.flushes:
                node.properties |= {"log.flush.interval.messages": "1"}
        self.process = client_process(world, "c1")
        self.router = self.process.context.run(Router, world, node_ids)
        self.administrator = Administrator(world, node_ids)
        self.faults = Faults(world, self.nodes, self.ledger, calm_s=plan.calm, faults_max=faults_max)
        self.producers: list[Producer] = []
        self.transactions = TransactionalClients(world, self.ledger, self.process, self.router, node_ids)

    def outcome(self) -> Outcome:
        """The result of the run."""
        world = self.world
        ledger = self.ledger
        return Outcome(
            plan=self.plan,
            violations=world.violations,
            history=list(world.history),
            digest=world.digest,
            steps=world.loop.steps,
            acknowledged=sum(len(found) for found in ledger.acknowledged.values()),
            read=sum(len(found) for found in ledger.read.values()),
            virtual_s=world.loop.now_s,
            faults=self.faults.count,
            counts=dict(self.faults.counts),
            transactions=len(self.transactions.ledger.transactions),
        )

    def play(self) -> None:
        """Play the seed from the start of the processes to the last check."""
        world = self.world
        for node in self.nodes.values():
            node.start()
        self.process.spawn(self.administrator.create_standing_topics(), name="topics")
        self.run_for(SETTLE_S, lambda: self.administrator.is_ready)
        if not self.administrator.is_ready:
            world.violate("progress", "the topics were not created")
        self._start_clients()
        if self.plan.kind is Kind.TRANSACTIONS:
            self.transactions.start(self.administrator.standing)
        self.run_for(0.5)
        self.process.spawn(self.administrator.work(), name="administrator")
        self.faults.begin()
        self.run_for(self.plan.faults_s)
        self.faults.heal()
        self.administrator.is_wanted = False
        for producer in self.producers:
            producer.is_wanted = False
        self.transactions.finish()
        if not world.violations:
            self._become_whole()

    def _start_clients(self) -> None:
        chance = self.world.chance
        for topic, index in self.administrator.standing:
            for number, (acks, is_idempotent) in enumerate(
                ((-1, True), chance.choice(((-1, False), (1, False), (-1, True))))
            ):
                producer = Producer(
                    self.world,
                    self.ledger,
                    self.router,
                    name=f"{topic}-{index}/{number}",
                    topic=topic,
                    index=index,
                    acks=acks,
                    producer_id=100 + len(self.producers) if is_idempotent else -1,
                    pace_s=chance.choice((0.05, 0.15)),
                    window=chance.choice((1, 3)) if is_idempotent else 1,
                )
                self.producers.append(producer)
                self.process.spawn(producer.run(), name=producer.name)
            consumer = Consumer(self.world, self.ledger, self.router, topic, index)
            self.process.spawn(consumer.run(), name=f"consumer of {topic}-{index}")

    def _become_whole(self) -> None:
        missing: list[str] = ["nothing was looked at"]
        for _ in range(int(HEAL_S_MAX)):
            self.run_for(1.0)
            if self.world.violations:
                return
            missing = missing_for_wholeness(self.world, self.nodes, self.producers, self.administrator)
            missing += self.transactions.missing(self.nodes)
            if not missing:
                break
        if missing:
            self.world.violate("progress", f"{HEAL_S_MAX:.0f} s after all faults healed: " + "; ".join(missing[:8]))
            return
        for invariant, story in unsound_endings(self.world, self.ledger, self.nodes, self.producers):
            self.world.violate(invariant, story)
        for invariant, story in self.transactions.unsound_endings(self.nodes):
            self.world.violate(invariant, story)


def play(seed: int, kind: Kind = Kind.REPLICATION, *, is_told: bool = False, faults_max: int | None = None) -> Outcome:
    """Run one seed, the first `faults_max` faults of it."""
    if kind is Kind.LINKS:
        return LinkSimulation(LinkPlan.of(seed), is_told=is_told, faults_max=faults_max).run()
    return Simulation(Plan.of(seed, kind), is_told=is_told, faults_max=faults_max).run()
