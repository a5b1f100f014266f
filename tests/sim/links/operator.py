"""An operator who makes the link and moves it about: the product's own playbook, in a process that
may die in the middle of any step and be run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import FailoverRun
from dr.failover.journal import Journal
from dr.failover.report import FailoverReport, FailoverTimeouts
from dr.links.administration import LinkSpec, SiteAddresses, create_link
from dr.links.alteration import alter_link
from dr.sites.channels import Channels
from dr.sites.site_client import LinkChanges
from runtime.process import OperationalFailure
from tests.sim.links.ledger import LinkLedger
from tests.sim.links.plan import LINK, SITES, other
from tests.sim.links.world_of_two import TwoSites, drifting_clock
from tests.sim.virtual_loop import Process
from tests.sim.world import World
from wire.rules.links import ReinstatePolicy

TIMEOUTS = FailoverTimeouts(enforce_ms=2_000, promote_ms=6_000)
ECHO_S = 10.0
"""What an operator's process has sent arrives within this time after its death."""


class Operator:
    """The operator of one link."""

    def __init__(self, world: World, sites: TwoSites, ledger: LinkLedger, host: str) -> None:
        self._world = world
        self.host = host
        self._sites = sites
        self._ledger = ledger
        self._runs = 0
        self._process: Process | None = None
        self.counts: Counter[str] = Counter()
        self.has_link = False
        self.last: FailoverReport | None = None
        self.on_step: Callable[[str], object] = lambda _: None
        """Called with each step of a move."""
        self._is_moving = False
        self._moved_at_s = -ECHO_S

    @property
    def process(self) -> Process:
        """A process of the operator; a new one after each death."""
        if self._process is None or not self._process.is_alive:
            self._runs += 1
            process = self._process = Process(self._world.loop, f"{self.host}.{self._runs}", self.host)
            process.on_death.append(lambda: self._world.network.process_ended(process))
        return self._process

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way."""
        return self._is_moving and self._process is not None and self._process.is_alive

    @property
    def may_have_moved(self) -> bool:
        """Whether a run is under way, or requests of a dead run may still arrive."""
        return self.is_busy or self._world.loop.now_s < self._moved_at_s + ECHO_S

    async def make_link(self) -> None:
        """Retry until the link is made."""
        plan, channels = self._sites.plan, Channels(self._world.dial)
        spec = LinkSpec(
            name=LINK,
            source_site="a",
            target_site="b",
            source=SiteAddresses(bootstrap_servers=self._sites.bootstrap("a"), agents=self._sites.agents("a")),
            target=SiteAddresses(bootstrap_servers=self._sites.bootstrap("b"), agents=self._sites.agents("b")),
            sync=plan.sync,
            sync_timeout_ms=plan.sync_timeout_ms,
            reinstate=ReinstatePolicy.AUTOMATIC,
            lease_ms=plan.lease_ms,
            failover_mode=plan.mode,
        )
        source, target = (self._sites.client(site, channels) for site in SITES)
        while not self.has_link:
            try:
                await create_link(spec, source=source, target=target, clock=drifting_clock(self._world))
            except OperationalFailure as failure:
                self._world.tell(f"the link is not made yet: {failure}")
                await self._world.pause(0.5)
                continue
            self.has_link = True

    def begin(self) -> None:
        """Move the link about until `end`."""
        self._world.loop.call_later(
            self._world.chance.uniform(0.5, 4.0), self._next, context=self._world.network.context
        )

    is_wanted = True

    def _next(self) -> None:
        chance = self._world.chance
        if self.is_wanted and not self.is_busy:
            to_site = chance.choice(SITES)
            is_planned = chance.random() < 0.6
            self.move(to_site, is_planned=is_planned)
            if chance.random() < 0.4:
                self.die_later()
        self._world.loop.call_later(chance.uniform(1.0, 6.0), self._next, context=self._world.network.context)

    def notice_dark(self, site: str) -> None:
        """Often the operator fails over from a site that went dark."""
        if self.is_wanted and self._sites.plan.has_operator and self._world.chance.random() < 0.6:
            delay_s = self._world.chance.uniform(0.3, 2.0)
            self._world.loop.call_later(delay_s, self._fail_over_from, site, context=self._world.network.context)

    def _fail_over_from(self, site: str) -> None:
        if self.is_wanted and not self.is_busy:
            self.move(other(site), is_planned=False)

    def _die(self, process: Process) -> None:
        if process.is_alive and self.is_wanted:
            self._world.tell(f"{process.name} is killed in the middle of a move")
            self.counts["killed"] += 1
            self._moved_at_s = self._world.loop.now_s
            process.kill()

    def move(
        self, to_site: str, *, is_planned: bool, accepts_loss: bool = False, is_declared_down: bool = True
    ) -> None:
        """Begin a move: a switchover, or a failover from a site that the operator declares down, or
        whose lease is relied upon.
        """
        kind = "switchover" if is_planned else "failover"
        self._world.tell(f"{kind} to {to_site}")
        self.counts[kind] += 1
        policy = (
            FailoverPolicy(drain_timeout_ms=5_000, unavailability_max_ms=3_000, is_switchover=True)
            if is_planned
            else FailoverPolicy(
                drain_timeout_ms=2_000, is_old_site_down=is_declared_down, accepts_data_loss=accepts_loss
            )
        )
        self._is_moving = True
        self.last = None
        self.process.spawn(self._move(to_site, policy), name=kind)

    def abort(self, to_site: str) -> None:
        """Begin to abort a move to the site that another process has not finished."""
        self._world.tell(f"failovers abort, of a move to {to_site}")
        self.counts["aborted"] += 1
        self._is_moving = True
        self.last = None
        self.process.spawn(self._move(to_site, FailoverPolicy(is_abort=True)), name="abort")

    def alter(self, changes: LinkChanges) -> None:
        """Begin to change the link's policies."""
        self._world.tell(f"links alter: {changes}")
        self.counts["altered"] += 1
        self._is_moving = True
        self.process.spawn(self._alter(changes), name="alter")

    async def _alter(self, changes: LinkChanges) -> None:
        channels = Channels(self._world.dial)
        try:
            clients = [self._sites.client(site, channels) for site in SITES]
            altered = await alter_link(LINK, clients, changes)
            self._world.tell(f"the link is altered{altered.problem and f', but {altered.problem}'}")
        except OperationalFailure as failure:
            self._world.tell(f"the link is not altered: {failure}")
        finally:
            self._is_moving = False
            await channels.close()

    def die_later(self) -> None:
        """The process dies in the middle of its next steps."""
        delay_s = self._world.chance.uniform(0.0, 2.0)
        self._world.loop.call_later(delay_s, self._die, self.process, context=self._world.network.context)

    def die(self) -> None:
        """The process dies, unless the faults are over."""
        self._die(self.process)

    def _note_step(self, step: str, reason: str) -> None:
        self._world.tell(f"step {step}: {reason}")
        self.on_step(step)

    async def _move(self, to_site: str, policy: FailoverPolicy) -> None:
        channels, clock = Channels(self._world.dial), drifting_clock(self._world)
        from_site = other(to_site)
        try:
            with Journal(None, clock) as journal:
                run = FailoverRun(
                    link=LINK,
                    target=self._sites.client(to_site, channels),
                    source=self._sites.client(from_site, channels),
                    journal=journal,
                    policy=policy,
                    timeouts=TIMEOUTS,
                    clock=clock,
                    progress=self._note_step,
                )
                report = self.last = await run.run()
                self._world.tell(f"the move to {to_site} is {report.outcome}: {report.reason}")
                has_raised = report.is_fence_proven and any(step.step == "raise" for step in report.steps)
                if report.is_done and policy.is_switchover and has_raised:
                    self._ledger.check_planned(to_site)
        except OperationalFailure as failure:
            self._world.tell(f"the move to {to_site} failed: {failure}")
        finally:
            self._is_moving = False
            await channels.close()
