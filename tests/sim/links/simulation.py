"""One seed of two sites from beginning to end: a link is made and protected, works under faults, is
healed, must protect itself again, is moved to the other site and must have lost nothing by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.sim.clients import client_process
from tests.sim.links.clients import PATIENCE_MS, TIMEOUT_MS, LinkCommitter, LinkProducer, open_client
from tests.sim.links.command_stories import CommandStories
from tests.sim.links.endings import (
    lost,
    missing_for_equality,
    missing_for_failover,
    missing_for_protection,
    switchover_is_free,
    unsound_endings,
)
from tests.sim.links.faults import LinkFaults
from tests.sim.links.ledger import LinkLedger
from tests.sim.links.operator import Operator
from tests.sim.links.plan import ARBITERS, OPERATOR_HOSTS, PARTITIONS, SITES, TOPIC, ZOOKEEPERS, LinkPlan, Story, other
from tests.sim.links.world_of_two import TwoSites
from tests.sim.node import CLIENT_HOST
from tests.sim.seed_run import Outcome, SeedRun
from tests.sim.world import World
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.control.cluster_pb2 import LinkPhase

SETTLE_S = 15.0
"""Time to come up, to make the link and to finish the first copy."""
FIRST_RECORDS_S = 2.0
"""How long producers write before the link is made, in a story of its first copy."""
RESERVE_MS = 500
"""Time (ms) before a client gives up a Produce request, by which the broker answers it."""
FAULTS_S_MAX = 60.0
"""Virtual time in which a story must come to its end."""
HEAL_S_MAX = 40.0
"""Virtual time in which the healed sites must protect each other again, or be equal."""


class LinkSimulation(SeedRun):
    """One run of two sites."""

    def __init__(self, plan: LinkPlan, *, is_told: bool = False, faults_max: int | None = None) -> None:
        world = World(plan.seed, is_told=is_told, ensembles=(*(ZOOKEEPERS[site] for site in SITES), ARBITERS))
        super().__init__(world)
        self.plan = plan
        self.ledger = LinkLedger(world)
        self.sites = TwoSites(world, self.ledger, plan)
        self.ledger.nodes = self.sites.nodes
        self.operators = [Operator(world, self.sites, self.ledger, host) for host in OPERATOR_HOSTS]
        self.operator = self.operators[0]
        self.ledger.may_operator_have_moved = lambda: any(one.may_have_moved for one in self.operators)
        self.faults = (
            LinkFaults(world, self.sites, faults_max=faults_max)
            if plan.story is Story.RANDOM
            else CommandStories(world, self.sites, self.ledger, self.operators, faults_max=faults_max)
        )
        self.faults.active_site = self._active_site
        self.faults.on_dark = self.operator.notice_dark
        self.process = client_process(world, CLIENT_HOST)
        self.places = tuple((TOPIC, index) for index in range(PARTITIONS))
        self.producers: list[LinkProducer] = []
        self.committer: LinkCommitter | None = None
        self._has_topic = False

    def outcome(self) -> Outcome:
        """The result of the run."""
        world = self.world
        return Outcome(
            plan=self.plan,
            violations=world.violations,
            history=list(world.history),
            digest=world.digest,
            steps=world.loop.steps,
            acknowledged=len(self.ledger.acknowledged),
            read=0,
            virtual_s=world.loop.now_s,
            faults=self.faults.count,
            moves=self.ledger.moves,
            lost=lost(self.ledger),
            counts={**self.faults.counts, **sum((one.counts for one in self.operators), Counter())},
        )

    def check(self) -> None:
        """Look at what must hold after every step."""
        self.ledger.check_permits()

    def play(self) -> None:
        """Play the seed from the start of the processes to the last check."""
        self.sites.start()
        self.process.spawn(self._create_topic(), name="topic")
        self._wait_for(lambda: [] if self._has_topic else ["the topic is not created"], SETTLE_S, "at the start")
        is_first_copy = self.plan.story is Story.FIRST_COPY
        if is_first_copy:
            self._start_clients()
            self.run_for(FIRST_RECORDS_S)
            self.faults.begin()
        self.operator.process.spawn(self.operator.make_link(), name="link")
        self._wait_for(lambda: [] if self.operator.has_link else ["no link"], SETTLE_S, "at the start")
        if not is_first_copy:
            self._start_clients()
            self._wait_for(self._missing_for_protection, SETTLE_S, "at the start")
            self._wait_for(lambda: missing_for_failover(self.world, self.ledger), SETTLE_S, "at the start")
            self.faults.begin()
        if self.world.violations:
            return
        if self.plan.has_operator:
            self.operator.begin()
        self.run_for(self.plan.faults_s if self.plan.story is Story.RANDOM else 0.0)
        self.run_for(FAULTS_S_MAX, lambda: self.faults.is_over)
        for operator in self.operators:
            operator.is_wanted = False
        self.faults.heal()
        self._become_whole()

    async def _create_topic(self) -> None:
        client = ControllerClient(lambda: list(self.sites.agents("a")), timeout_ms=3000, dial=self.world.dial)
        topic = pb.NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=self.plan.brokers)
        while not self._has_topic:
            try:
                reply = await client.create_topics(pb.CreateTopicsRequest(topics=[topic]))
                self._has_topic = not reply.results[0].error_code
            except ControllerUnavailable:
                pass
            await self.world.pause(0.1)

    def _active_site(self) -> str:
        record = self.ledger.record_at("a")
        return SITES[0] if record is None else str(record.active_site)

    def _start_clients(self) -> None:
        chance = self.world.chance
        bootstrap = ",".join(self.sites.bootstrap(site) for site in SITES)
        timeout_ms = PATIENCE_MS if self.plan.story is Story.LATE else TIMEOUT_MS
        open_for = partial(open_client, bootstrap, request_timeout_ms=timeout_ms)
        for topic, index in self.places:
            producer = LinkProducer(
                self.world,
                self.ledger,
                self.process.context.run(open_for),
                name=f"{topic}-{index}",
                topic=topic,
                index=index,
                pace_s=chance.choice((0.05, 0.2)),
                timeout_ms=timeout_ms - RESERVE_MS,
            )
            self.producers.append(producer)
            self.process.spawn(producer.run(), name=producer.name)
        self.committer = LinkCommitter(self.world, self.process.context.run(open_for), self.producers[0], pace_s=0.4)
        self.process.spawn(self.committer.run(), name="committer")

    def _missing_for_protection(self) -> list[str]:
        return missing_for_protection(self.world, self.sites, self.ledger)

    def _wait_for(self, missing: Callable[[], list[str]], seconds: float, when: str) -> None:
        """Wait until no record is missing; records that are still missing after this time break
        `progress`.
        """
        until_s = self.world.loop.now_s + seconds
        left = ["nothing was looked at"]
        while left and not self.world.violations and self.world.loop.now_s < until_s:
            self.run_for(0.5)
            left = missing()
        if left and not self.world.violations:
            self.world.violate("progress", f"{when}, after {seconds:.0f} s: " + "; ".join(left[:6]))

    def _become_whole(self) -> None:
        self._wait_for(self._missing_after_faults, HEAL_S_MAX, "after all faults")
        if self.world.violations:
            return
        self._fail_back()
        for producer in self.producers:
            producer.is_wanted = False
        if self.committer is not None:
            self.committer.is_wanted = False
        self._wait_for(self._missing_in_the_end, HEAL_S_MAX, "after the last move")
        if self.world.violations:
            return
        for invariant, story in unsound_endings(self.world, self.ledger, self.sites):
            self.world.violate(invariant, story)

    def _missing_after_faults(self) -> list[str]:
        """A run that died under a fence is taken up again, as an operator would."""
        record = self.ledger.record_at("a")
        is_busy = any(one.is_busy for one in self.operators)
        if not is_busy and record is not None and self._is_unfinished():
            self.operator.move(self._unfinished_target(), is_planned=False)
        return ["a move is under way"] if is_busy else self._missing_for_protection()

    def _is_unfinished(self) -> bool:
        missing = self._missing_for_protection()
        return bool(missing) and self.world.chance.random() < 0.1

    def _unfinished_target(self) -> str:
        """The site that the newest record makes active, or would."""
        records = [record for site in SITES if (record := self.ledger.record_at(site)) is not None]
        newest = max(records, key=lambda record: (record.epoch, record.revision))
        return other(newest.active_site) if newest.phase == LinkPhase.FENCED else newest.active_site

    def _fail_back(self) -> None:
        """Make a planned move to the other site. It must lose nothing."""
        record = self.ledger.record_at("a")
        assert record is not None
        to_site = other(record.active_site)

        def missing() -> list[str]:
            now = self.ledger.record_at(to_site)
            if not self.operator.is_busy and (now is None or now.active_site != to_site):
                self.operator.move(to_site, is_planned=True)
            if self.operator.is_busy or now is None or now.active_site != to_site:
                return [f"{to_site} is not active"]
            return self._missing_for_protection()

        self._wait_for(missing, HEAL_S_MAX, f"after a switchover to {to_site} began")
        if not self.world.violations:
            now = self.ledger.record_at(to_site)
            story = switchover_is_free(self.world, 0 if now is None else now.epoch)
            if story:
                self.world.violate("planned-moves-lose-nothing", story)

    def _missing_in_the_end(self) -> list[str]:
        waiting = [f"{producer.name} waits" for producer in self.producers if producer.is_waiting]
        if self.committer is not None and self.committer.is_waiting:
            waiting.append("the committer waits")
        return waiting + self._missing_for_protection() + missing_for_equality(self.world, self.ledger, self.places)
