"""Runs a failover: the playbook decides, `actions.py` acts at both sites' agents, and this module
writes the journal and the report.

`antipode failover` and the drill's `fail_over` step call `failover`. A run may be interrupted, and
any operator may repeat it from any machine, because all its state is stored at the sites. Every
call has a deadline; each problem names the site and its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field, to_builtins

from dr.failover.actions import SiteActions
from dr.failover.core.foreseen import foreseen
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.recorded_run import RUNNING
from dr.failover.core.steps import Decision, FailoverPolicy, Step, StepEnded
from dr.failover.journal import Journal
from dr.failover.log_ends import look_up_consistent_point, look_up_truncations
from dr.failover.member_handover import MemberHandover
from dr.failover.planning import plan_failover
from dr.failover.report import FailoverReport, FailoverTimeouts, StepReport
from dr.failover.run_record import RunKeeper
from dr.sites.channels import Channels
from dr.sites.core.evidence import Evidence
from dr.sites.core.log_columns import LogEnds
from dr.sites.core.sync_policies import policy_sentence
from dr.sites.observation import LinkObserver
from dr.sites.site_client import COMMAND_PATIENCE_MS, SiteClient
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from wire.client.security import ClientSecurity
from wire.rules.links import other_site

POLL_S = 0.05
PAUSE_SHARE = 2.0
"""A wait pauses this many times as long as the sites took to answer, because describing many groups
is much work for them.
"""
STOPPED_POLL_S = 0.01
STOPPED_PAUSE_SHARE = 0.25
"""A wait while writers are stopped pauses this share of the time that the sites took to answer."""


Progress = Callable[[str, str], None]


class FailoverRun(Struct, kw_only=True):
    """One run; `run` executes it, `plan` only reports what it would do."""

    link: str
    target: SiteClient
    source: SiteClient | None
    journal: Journal
    policy: FailoverPolicy = field(default_factory=FailoverPolicy)
    timeouts: FailoverTimeouts = field(default_factory=FailoverTimeouts)
    clock: Clock = field(default_factory=SystemClock)
    progress: Progress = lambda _step, _reason: None
    security: ClientSecurity | None = None
    """Security of clients of the target's brokers; None: the security settings of this process."""
    asked_by: str = ""
    """The user who asked for the run, if that is not the user of this process."""
    settled_ends: LogEnds | None = None
    """The ends of the target's logs, if they have not grown for `policy.settle_ms` before the run:
    as long as they are the same, the run does not wait for records of a lost source.
    """
    _steps: list[StepReport] = field(default_factory=list)
    _unix_at_zero_ms: int = 0
    _asked_s: float = 0.0
    _wait_began_ms: float = 0.0

    def __post_init__(self) -> None:
        # The wall clock is read once: deadlines must not move when the machine's clock is set
        # during the run.
        self._unix_at_zero_ms = self.clock.now_ms() - round(self.clock.monotonic_ms())

    async def plan(self) -> FailoverReport:
        """The plan of a run and its losses, from one look; changes nothing."""
        return await plan_failover(
            self._observer(), target=self.target, policy=self.policy, clock=self.clock, security=self.security
        )

    async def run(self) -> FailoverReport:
        """Continue until the target is active or the playbook refuses."""
        keeper = RunKeeper(self.link, self.target, self.clock, policy=to_builtins(self.policy), asked_by=self.asked_by)
        members = MemberHandover(self.link, source=self.source, target=self.target, journal=self.journal)
        try:
            report = await self._run(keeper, members)
            self._note_run(keeper, report.epoch, report.reason, outcome=report.outcome)
        finally:
            await members.close()
            # Also after a failure, so that the last steps are stored as well.
            await keeper.close()
        return report

    def _note_run(self, keeper: RunKeeper, epoch: int, reason: str, *, outcome: str = RUNNING) -> None:
        steps = tuple(to_builtins(step) for step in self._steps)
        keeper.note(steps=steps, epoch=epoch, reason=reason, outcome=outcome)

    async def _run(self, keeper: RunKeeper, members: MemberHandover) -> FailoverReport:
        observer = self._observer()
        playbook = FailoverPlaybook(to_site=self.target.name, policy=self.policy, settled_ends=self.settled_ends)
        actions = self._actions(playbook, observer, members)
        started_ms = self.clock.monotonic_ms()
        self.journal.write("run begins", link=self.link, to=self.target.name, policy=to_builtins(self.policy))
        expected: Evidence | None = None
        while True:
            evidence = expected or await self._look(observer, playbook)
            expected = None
            playbook.observe(evidence, self._now_ms())
            await look_up_truncations(playbook.truncations, evidence, self.target, self.policy, self.security)
            decision = playbook.decide(evidence, self._now_ms())
            if decision.step is Step.RAISE and await look_up_consistent_point(
                playbook.truncations, evidence, self.target, self.policy, self.security
            ):
                decision = playbook.decide(evidence, self._now_ms())
            if decision.step in (Step.DONE, Step.REFUSE):
                break
            # Only once for each step, because a drain observes the sites many times a second.
            if not self._steps or self._steps[-1].step != decision.step.value:
                self._note_run(keeper, evidence.epoch, f"{decision.step.value}: {decision.reason}")
            if decision.step in (Step.PREPARE, Step.DRAIN):
                are_stopped = playbook.source.is_fence_proven or self.policy.needs_lost_source
                # The first look under the fence decides nothing: only a second one shows that the
                # logs do not grow.
                is_pause_due = not playbook.source.needs_second_look
                ended = await self._wait(decision, are_writers_stopped=are_stopped, is_pause_due=is_pause_due)
            else:
                ended = await self._act(decision, actions, evidence)
            playbook.apply(ended, self._now_ms())
            expected = foreseen(
                evidence,
                decision,
                ended,
                actions.account,
                with_source=playbook.wants_source,
                is_over=decision.record is not None and actions.is_over(decision.record),
            )
        outcome = "done" if decision.step is Step.DONE else "refused"
        self.journal.write("run ends", outcome=outcome, reason=decision.reason)
        account = await actions.kept_account(evidence)
        return FailoverReport(
            link=self.link,
            from_site=evidence.source_site,
            to_site=self.target.name,
            outcome=outcome,
            reason=decision.reason,
            epoch=evidence.epoch,
            is_fence_proven=playbook.source.is_fence_proven,
            duration_ms=round(self.clock.monotonic_ms() - started_ms),
            steps=tuple(self._steps),
            account=account,
            unprotected=() if account is None else account.unprotected,
            cuts=evidence.cuts,
            sync=policy_sentence(evidence.governing) if outcome == "done" else "",
            is_source_silent=bool(evidence.source_problem),
            may_be_raised=playbook.may_be_raised(evidence),
        )

    async def _look(self, observer: LinkObserver, playbook: FailoverPlaybook) -> Evidence:
        asked_ms = self.clock.monotonic_ms()
        if playbook.is_source_final:
            observer.reuse_logs()
        evidence = await observer.evidence(
            with_groups=playbook.wants_groups,
            with_source=playbook.wants_source,
            # A lost source that answers ends the run, so the order of the answers does not matter.
            is_source_final=playbook.is_source_final or self.policy.needs_lost_source,
        )
        # A site that does not answer has no load: the deadlines of its calls do not lengthen the
        # pauses.
        is_silent = bool(evidence.source_problem)
        self._asked_s = 0.0 if is_silent else (self.clock.monotonic_ms() - asked_ms) / 1000
        return evidence

    def _observer(self) -> LinkObserver:
        return LinkObserver(self.link, target=self.target, source=self.source, clock=self.clock)

    def _actions(self, playbook: FailoverPlaybook, observer: LinkObserver, members: MemberHandover) -> SiteActions:
        return SiteActions(
            link=self.link,
            target=self.target,
            source=self.source,
            observer=observer,
            members=members,
            playbook=playbook,
            policy=self.policy,
            timeouts=self.timeouts,
            clock=self.clock,
            security=self.security,
        )

    def _now_ms(self) -> int:
        """Unix ms that do not jump during the run, for deadlines and for the times in records."""
        return self._unix_at_zero_ms + round(self.clock.monotonic_ms())

    async def _act(self, decision: Decision, actions: SiteActions, evidence: Evidence) -> StepEnded:
        self.journal.write("step begins", step=decision.step.value, reason=decision.reason)
        self.progress(decision.step.value, decision.reason)
        started_at_ms, started_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        try:
            stored, problem = await actions.carry_out(decision, evidence)
        except OperationalFailure as failure:  # a site fell silent: the next look decides what that means
            stored, problem = None, str(failure)
        ended = StepEnded(step=decision.step, reason=decision.reason, stored=stored, problem=problem)
        self._note(ended, started_at_ms, started_ms)
        # The raise stored the account in the same request; only the report shows it as a separate
        # step.
        if decision.step is Step.RAISE and actions.account is not None:
            reason = f"the account was final and is stored with epoch {actions.account.epoch}"
            kept = StepEnded(step=Step.ACCOUNT, reason=reason)
            self._note(kept, self.clock.now_ms(), self.clock.monotonic_ms())
        return ended

    def _note(self, ended: StepEnded, started_at_ms: int, started_ms: float) -> None:
        report = StepReport(
            step=ended.step.value,
            reason=ended.reason,
            started_at_ms=started_at_ms,
            duration_ms=round(self.clock.monotonic_ms() - started_ms),
            problem=ended.problem,
        )
        self._steps.append(report)
        self.journal.write("step ends", **to_builtins(report))

    async def _wait(self, decision: Decision, *, are_writers_stopped: bool, is_pause_due: bool) -> StepEnded:
        """Pause once in a preparation or a drain; the report shows consecutive pauses as one
        step.
        """
        step, reason = decision.step, decision.reason
        if not self._steps or self._steps[-1].step != step.value:
            self.journal.write("step begins", step=step.value, reason=reason)
            self._wait_began_ms = self.clock.monotonic_ms()
            self._note(StepEnded(step=step, reason=reason), self.clock.now_ms(), self._wait_began_ms)
        self.progress(step.value, reason)
        share, least_s = (STOPPED_PAUSE_SHARE, STOPPED_POLL_S) if are_writers_stopped else (PAUSE_SHARE, POLL_S)
        # Queries load sites whose writers wait, so the pause grows with the time of the last
        # queries.
        await asyncio.sleep(max(least_s, share * self._asked_s) if is_pause_due else 0)
        first = self._steps[-1]
        duration_ms = round(self.clock.monotonic_ms() - self._wait_began_ms)
        self._steps[-1] = StepReport(
            step=first.step, reason=first.reason, started_at_ms=first.started_at_ms, duration_ms=duration_ms
        )
        return StepEnded(step=step, reason=reason)


async def failover(
    link: str,
    *,
    to_site: str,
    agents: Mapping[str, Sequence[str]],
    policy: FailoverPolicy | None = None,
    timeouts: FailoverTimeouts | None = None,
    is_dry_run: bool = False,
    journal_path: Path | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    security: ClientSecurity | None = None,
) -> FailoverReport:
    """Make `to_site` active for the link. `agents` maps site names to agent addresses; it must name
    `to_site`, and may leave the other site out: its addresses are then taken from the link record.
    `security` is that of clients of the target's brokers; None: that of this process.
    """
    if to_site not in agents:
        raise OperationalFailure(f"no agent address of site {to_site!r} is given; known: {', '.join(sorted(agents))}")
    used_clock = clock or SystemClock()
    channels = Channels()
    try:
        target = SiteClient(to_site, agents[to_site], channels, patience_ms=COMMAND_PATIENCE_MS)
        source = await _source_client(link, target, agents, channels)
        with Journal(journal_path, used_clock) as journal:
            run = FailoverRun(
                link=link,
                target=target,
                source=source,
                journal=journal,
                policy=policy or FailoverPolicy(),
                timeouts=timeouts or FailoverTimeouts(),
                clock=used_clock,
                progress=progress or (lambda _step, _reason: None),
                security=security,
            )
            return await (run.plan() if is_dry_run else run.run())
    finally:
        await channels.close()


async def _source_client(
    link: str, target: SiteClient, agents: Mapping[str, Sequence[str]], channels: Channels
) -> SiteClient | None:
    record = (await target.describe_link(link, is_brief=True)).record
    if target.name not in (record.source_site, record.target_site):
        raise OperationalFailure(f"link {link} joins {record.source_site} and {record.target_site}, not {target.name}")
    name = other_site(record, target.name)
    addresses = agents.get(name) or list(record.sites[name].agents)
    return SiteClient(name, addresses, channels, patience_ms=COMMAND_PATIENCE_MS) if addresses else None
