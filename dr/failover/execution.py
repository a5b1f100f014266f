"""Carrying out a failover: the playbook decides, this acts on both sites' agents and writes the
journal and the report.

`antipode failover` and the drill's `fail_over` step call `failover`. It may be interrupted and
called again, by anybody, from anywhere: all that matters is stored at the sites. Every call has a
deadline; a problem is said with the site and what it said.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dr.failover.accounting import Accounting
from dr.failover.core.assess import assess
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.promotion import failed_over_from, has_leaders_above_floor, is_promoted
from dr.failover.core.steps import Decision, FailoverPolicy, Step, StepEnded
from dr.failover.core.torn_transactions import TornSurvey, with_transactions
from dr.failover.journal import Journal
from dr.failover.log_ends import end_torn_transactions, planned_ends, site_client, truncate_logs
from dr.failover.member_handover import MemberHandover
from dr.failover.report import FailoverReport, FailoverTimeouts, StepReport
from dr.failover.run_record import RUNNING, RunKeeper
from dr.sites.channels import Channels
from dr.sites.core.evidence import Evidence, ReplicaTruncation, SiteEvidence
from dr.sites.core.loss import LossAccount
from dr.sites.core.sync_policies import policy_sentence
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from runtime.times import iso_time
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site
from wire.rules.links import truncates_logs as is_truncating

POLL_S = 0.05
REST_SHARE = 2.0
"""A wait pauses this many times as long as the sites took to answer: many groups are much to ask
for.
"""
STOPPED_POLL_S = 0.01
STOPPED_REST_SHARE = 0.25
"""A wait while writers are stopped pauses this share of the time that the sites took to answer."""


Progress = Callable[[str, str], None]


@dataclass(slots=True, kw_only=True)
class FailoverRun:
    """One run; `run` does it, `plan` only says what it would do."""

    link: str
    target: SiteClient
    source: SiteClient | None
    journal: Journal
    policy: FailoverPolicy = field(default_factory=FailoverPolicy)
    timeouts: FailoverTimeouts = field(default_factory=FailoverTimeouts)
    clock: Clock = field(default_factory=SystemClock)
    progress: Progress = lambda _step, _reason: None
    asked_by: str = ""
    """The user who asked for the run, if that is not the user of this process."""
    _steps: list[StepReport] = field(default_factory=list)
    _account: LossAccount | None = None
    _undone: TornSurvey = field(default_factory=TornSurvey)
    _members: MemberHandover = field(init=False)
    _evidence: Evidence | None = None
    """As of the last decision."""
    _unix_at_zero_ms: int = 0
    _asked_s: float = 0.0

    def __post_init__(self) -> None:
        self._members = MemberHandover(self.link, source=self.source, target=self.target, journal=self.journal)
        # wall time once: deadlines must not move when a machine's clock is set during the run
        self._unix_at_zero_ms = self.clock.now_ms() - round(self.clock.monotonic_ms())

    async def plan(self) -> FailoverReport:
        """The plan of a run and its losses, from one look; changes nothing."""
        evidence = await self._observer().evidence(with_groups=True)
        assessment = assess(evidence, to_site=self.target.name, policy=self.policy, now_ms=self.clock.now_ms())
        from_site = self._from_site(evidence)
        missing = f"{assessment.missing_records} records are not at {self.target.name} yet"
        if assessment.missing_offsets:
            missing += f", nor are {assessment.missing_offsets} offsets that groups committed"
        if assessment.is_source_reachable:
            rest = (
                "only what the link cannot carry would be missing"
                if assessment.unprotected
                else "nothing would be lost"
            )
            if assessment.account is not None:
                rest = "the account says what differs"
            missing += f"; {from_site} answers: it would be fenced, they would be brought over, and {rest}"
        if not assessment.refusal:
            missing += await self._planned_truncation(evidence)
        return FailoverReport(
            link=self.link,
            from_site=from_site,
            to_site=self.target.name,
            outcome="refused" if assessment.refusal else "planned",
            reason=assessment.refusal or missing,
            epoch=_epoch(evidence),
            planned_steps=assessment.steps,
            account=assessment.account,
            cuts=_cuts(evidence),
            sync=assessment.sync,
            unprotected=assessment.unprotected,
            is_source_silent=not assessment.is_source_reachable,
        )

    async def run(self) -> FailoverReport:
        """Go on until the target is active or the playbook refuses."""
        keeper = RunKeeper(self.link, self.target, self.clock, policy=asdict(self.policy), asked_by=self.asked_by)
        try:
            report = await self._run(keeper)
            self._note_run(keeper, report.epoch, report.reason, outcome=report.outcome)
        finally:
            # also after a failure: what the keeper has not stored is stored here
            await keeper.close()
        return report

    def _note_run(self, keeper: RunKeeper, epoch: int, reason: str, *, outcome: str = RUNNING) -> None:
        steps = tuple(asdict(step) for step in self._steps)
        keeper.note(steps=steps, epoch=epoch, reason=reason, outcome=outcome)

    async def _run(self, keeper: RunKeeper) -> FailoverReport:
        observer = self._observer()
        playbook = FailoverPlaybook(to_site=self.target.name, policy=self.policy)
        started_ms = self.clock.monotonic_ms()
        self.journal.write("run begins", link=self.link, to=self.target.name, policy=asdict(self.policy))
        while True:
            asked_ms = self.clock.monotonic_ms()
            evidence = await observer.evidence(
                with_groups=playbook.wants_groups,
                with_source=playbook.wants_source,
                is_source_final=playbook.is_source_final,
            )
            # A silent site is no load: the deadlines of its calls lengthen no pause.
            is_silent = bool(evidence.source_problem)
            self._asked_s = 0.0 if is_silent else (self.clock.monotonic_ms() - asked_ms) / 1000
            playbook.observe(evidence, self._now_ms())
            decision = playbook.decide(evidence, self._now_ms())
            if decision.step in (Step.DONE, Step.REFUSE):
                break
            # once for each step: a drain looks at the sites many times a second
            if not self._steps or self._steps[-1].step != decision.step.value:
                self._note_run(keeper, _epoch(evidence), f"{decision.step.value}: {decision.reason}")
            self._evidence = evidence
            ended = await self._carry_out(decision, playbook, observer)
            playbook.apply(ended, self._now_ms())
        outcome = "done" if decision.step is Step.DONE else "refused"
        self.journal.write("run ends", outcome=outcome, reason=decision.reason)
        return FailoverReport(
            link=self.link,
            from_site=self._from_site(evidence),
            to_site=self.target.name,
            outcome=outcome,
            reason=decision.reason,
            epoch=_epoch(evidence),
            is_fence_proven=playbook.source.is_fence_proven,
            duration_ms=round(self.clock.monotonic_ms() - started_ms),
            steps=tuple(self._steps),
            account=(kept := self._account or await self._kept_account(evidence)),
            unprotected=() if kept is None else kept.unprotected,
            cuts=_cuts(evidence),
            sync=policy_sentence(evidence.governing) if outcome == "done" else "",
            is_source_silent=bool(evidence.source_problem),
        )

    def _observer(self) -> LinkObserver:
        return LinkObserver(self.link, target=self.target, source=self.source, clock=self.clock)

    def _now_ms(self) -> int:
        """Unix ms that do not jump while the run lasts: deadlines are counted in them, and records
        carry them.
        """
        return self._unix_at_zero_ms + round(self.clock.monotonic_ms())

    def _from_site(self, evidence: Evidence) -> str:
        if evidence.target is None and evidence.source is None:
            return ""
        return other_site(evidence.governing, self.target.name)

    async def _carry_out(self, decision: Decision, playbook: FailoverPlaybook, observer: LinkObserver) -> StepEnded:
        if decision.step in (Step.PREPARE, Step.DRAIN):
            return await self._wait(decision, are_writers_stopped=playbook.source.is_fence_proven)
        self.journal.write("step begins", step=decision.step.value, reason=decision.reason)
        self.progress(decision.step.value, decision.reason)
        started_at_ms, started_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        record = decision.record
        assert record is not None
        match decision.step:
            case Step.FENCE:
                stored, problem = await self._store(self.source, record, timeout_ms=self._fence_timeout_ms)
            case Step.NOTIFY:
                stored, problem = await self._tell(record)
            case Step.RAISE:
                stored, problem = await self._raise(record, playbook)
            case Step.GIVE_BACK:
                stored, problem = await self._give_back(record)
            case Step.HAND_BACK:
                stored, problem = await self._hand_back(record)
            case Step.TRUNCATE:
                stored, problem = record, await self._truncate(record, observer)
            case Step.ACCOUNT:
                stored, problem = record, await self._keep_account(record, playbook, observer)
            case _:
                stored, problem = record, await self._promote(record, playbook, observer)
        ended = StepEnded(step=decision.step, reason=decision.reason, stored=stored, problem=problem)
        self._note(ended, started_at_ms, started_ms)
        # the account was stored in the same request: it is a step of its own in the report alone
        if decision.step is Step.RAISE and self._account is not None:
            kept = StepEnded(step=Step.ACCOUNT, reason=f"the account was final and is stored with epoch {record.epoch}")
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
        self.journal.write("step ends", **asdict(report))

    async def _wait(self, decision: Decision, *, are_writers_stopped: bool) -> StepEnded:
        """Pause once in a preparation or a drain; the report shows consecutive pauses as one
        step.
        """
        step, reason = decision.step, decision.reason
        if not self._steps or self._steps[-1].step != step.value:
            self.journal.write("step begins", step=step.value, reason=reason)
            self._note(StepEnded(step=step, reason=reason), self.clock.now_ms(), self.clock.monotonic_ms())
        self.progress(step.value, reason)
        share, least_s = (STOPPED_REST_SHARE, STOPPED_POLL_S) if are_writers_stopped else (REST_SHARE, POLL_S)
        # asking is a load on sites that writers wait for: the pause follows the time they took
        await asyncio.sleep(max(least_s, share * self._asked_s))
        first = self._steps[-1]
        duration_ms = self.clock.now_ms() - first.started_at_ms
        self._steps[-1] = StepReport(
            step=first.step, reason=first.reason, started_at_ms=first.started_at_ms, duration_ms=duration_ms
        )
        return StepEnded(step=step, reason=reason)

    @property
    def _fence_timeout_ms(self) -> int:
        """Brokers that enforce the fence stop writers while the others are waited for."""
        return min(self.timeouts.enforce_ms, self.policy.unavailability_max_ms)

    async def _store(
        self, client: SiteClient | None, record: LinkRecord, *, timeout_ms: int | None = None, account: str = ""
    ) -> tuple[LinkRecord | None, str]:
        """Store at one site; the record found there, None when it is not known, and what did not
        work.
        """
        if client is None:
            return None, "no agent address is known"
        try:
            timeout_ms = timeout_ms or self.timeouts.enforce_ms
            return await client.adopt_link(record, timeout_ms=timeout_ms, account=account), ""
        except OperationalFailure as failure:
            # unknown outcome: the playbook looks at the sites again before it decides
            return None, str(failure)

    async def _raise(self, record: LinkRecord, playbook: FailoverPlaybook) -> tuple[LinkRecord | None, str]:
        """Store the new epoch at the target, and with it its account where that is final already:
        writers do not wait for another step.
        """
        final = self._accounting(playbook).before_the_raise(record, self._evidence, unix_ms=self.clock.now_ms())
        (stored, problem), _ = await asyncio.gather(
            self._store(self.target, record, account="" if final is None else final.to_json()),
            self._members.fetch() if _moves_members(record, playbook) else asyncio.sleep(0),
        )
        # another record is there: another run has won, and this account is not about it
        if stored == record:
            self._account = final
        return stored, problem

    def _accounting(self, playbook: FailoverPlaybook) -> Accounting:
        return Accounting(self.link, target=self.target, playbook=playbook)

    async def _tell(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """Bring the source the record and the account, which it copies from its peer otherwise."""
        stored, problem = await self._store(self.source, record)
        if stored is not None and self.source is not None and self._account is not None:
            # the source copies the account from its peer too: this is only sooner
            with contextlib.suppress(OperationalFailure):
                await self.source.record_failover(self.link, epoch=record.epoch, document=self._account.to_json())
        return stored, problem

    async def _give_back(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """End the fence: first at the target, where another operator may have won, then at the
        source, which may write again.
        """
        stored, problem = await self._store(self.target, record)
        # the target first: once it has the record, no other run can raise the epoch over the source
        if stored is None or stored != record or self.source is None:
            return stored, problem
        source_stored, problem = await self._store(self.source, record)
        if source_stored == record:
            try:
                await self.source.confirm_link(record.name, epoch=record.epoch, lease_ms=record.lease_ms)
            except OperationalFailure as failure:
                problem = str(failure)
        return stored, problem

    async def _hand_back(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """Make the source active again: first there, where it is passive until then."""
        assert self.source is not None
        stored, problem = await self._store(self.source, record)
        if stored == record:
            await self._store(self.target, record)
            try:
                await self.source.confirm_link(record.name, epoch=record.epoch, lease_ms=record.lease_ms)
            except OperationalFailure as failure:
                problem = str(failure)
        return stored, problem

    async def _truncate(self, record: LinkRecord, observer: LinkObserver) -> str:
        """Truncate the target's logs once the new band's leaders are there."""
        # before that a leader of the old band could still append
        await self._until(observer, has_leaders_above_floor)
        try:
            evidence = await observer.site_evidence(self.target, with_groups=True)
            async with site_client(await self.target.view(asking_site=failed_over_from(record))) as client:
                found, problem = await truncate_logs(client, record, evidence)
        except OperationalFailure as failure:
            return str(failure)
        self._undone = self._undone if self._undone.torn else found
        return problem

    async def _planned_truncation(self, evidence: Evidence) -> str:
        """Describe what the policy would put into quarantine, as the end of a sentence."""
        policy = self.policy
        if evidence.target is None or not (policy.kept_before_ms or policy.is_cut_consistent):
            return ""
        async with site_client(await self.target.view(asking_site=self._from_site(evidence))) as client:
            ends, found = await planned_ends(
                client,
                evidence.target,
                kept_before_ms=policy.kept_before_ms,
                is_cut_consistent=policy.is_cut_consistent,
            )
        behind = sum(evidence.target.partitions[key].log_end_offset - offset for key, offset in ends.items())
        of_time = f" of {iso_time(policy.kept_before_ms)} or later" if policy.kept_before_ms else ""
        if policy.is_cut_consistent:
            of_time += f" behind {len(found.torn)} torn transactions"
        return f"; {behind} records{of_time} would go to quarantine"

    async def _end_torn(
        self, record: LinkRecord, playbook: FailoverPlaybook, evidence: SiteEvidence
    ) -> tuple[TornSurvey, str]:
        """Commit torn transactions where the target has them; return them and what did not work."""
        # what was drained is whole: no transaction can be torn there
        if record.is_cut_consistent or evidence.copies.keys() <= playbook.drained_ends.keys():
            return self._undone, ""
        try:
            async with site_client(await self.target.view(asking_site=failed_over_from(record))) as client:
                return await end_torn_transactions(client, record, evidence)
        except OperationalFailure as failure:
            return TornSurvey(), str(failure)

    async def _keep_account(self, record: LinkRecord, playbook: FailoverPlaybook, observer: LinkObserver) -> str:
        evidence = await observer.site_evidence(self.target, with_groups=True)
        found, transactions_problem = await self._end_torn(record, playbook, evidence)
        kept = await self._accounting(playbook).after_the_raise(record, evidence, observer, unix_ms=self.clock.now_ms())
        self._account = with_transactions(kept, record, found, transactions_problem)
        try:
            await self.target.record_failover(self.link, epoch=record.epoch, document=self._account.to_json())
        except SiteRefused as refusal:
            return str(refusal)
        return ""

    async def _promote(self, record: LinkRecord, playbook: FailoverPlaybook, observer: LinkObserver) -> str:
        """Wait for the new band's leaders, confirm the role, wait until every partition
        takes writes. A fenced source is informed as soon as writes are taken: its clients get the
        new leaders from it.
        """
        # the last look of the decision is often enough: each more would be an outage longer
        seen = self._evidence.target if self._evidence is not None else None
        if seen is None or seen.record != record or not has_leaders_above_floor(seen):
            await self._until(observer, has_leaders_above_floor)
        if _moves_members(record, playbook):
            await self._members.give(epoch=record.epoch)
        try:
            await self.target.confirm_link(record.name, epoch=record.epoch, lease_ms=record.lease_ms)
        except OperationalFailure as failure:
            return str(failure)
        # only a fenced source: an unfenced one does not answer, and its deadline would delay
        # writers
        informed = self._tell(record) if playbook.source.is_fence_proven else asyncio.sleep(0)
        evidence, _ = await asyncio.gather(self._until(observer, is_promoted), informed)
        waiting = sorted(
            {*evidence.leaderless, *(key for key, item in evidence.partitions.items() if not item.is_writable)}
        )
        return f"no writes yet at {', '.join(map(str, waiting[:5]))}" if waiting else ""

    async def _until(self, observer: LinkObserver, condition: Callable[[SiteEvidence], bool]) -> SiteEvidence:
        """The first evidence of the target that meets the condition, or the last one before the
        deadline.
        """
        deadline = self.clock.monotonic_ms() + self.timeouts.promote_ms
        while True:
            evidence = await observer.site_evidence(self.target)
            if condition(evidence) or self.clock.monotonic_ms() >= deadline:
                return evidence
            await asyncio.sleep(POLL_S)

    async def _kept_account(self, evidence: Evidence) -> LossAccount | None:
        """The account of the epoch that another run kept already."""
        if evidence.target is None or evidence.governing.epoch not in evidence.target.accounted_epochs:
            return None
        accounts = [LossAccount.from_json(text) for text in await self.target.failovers(self.link)]
        return next((item for item in accounts if item.epoch == evidence.governing.epoch), None)


def _moves_members(record: LinkRecord, playbook: FailoverPlaybook) -> bool:
    """True if the members of groups keep their positions: not where logs are truncated."""
    return playbook.source.is_fence_proven and record.is_routed and not is_truncating(record)


def _cuts(evidence: Evidence) -> tuple[ReplicaTruncation, ...]:
    return tuple(cut for site in (evidence.source, evidence.target) if site is not None for cut in site.cuts)


def _epoch(evidence: Evidence) -> int:
    return evidence.governing.epoch if evidence.target is not None or evidence.source is not None else 0


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
) -> FailoverReport:
    """Make `to_site` active for the link. `agents` maps site names to agent addresses; it must name
    `to_site`, and may leave the other site out: its addresses are then taken from the link record.
    """
    if to_site not in agents:
        raise OperationalFailure(f"no agent address of site {to_site!r} is given; known: {', '.join(sorted(agents))}")
    used_clock = clock or SystemClock()
    channels = Channels()
    try:
        target = SiteClient(to_site, agents[to_site], channels)
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
            )
            return await (run.plan() if is_dry_run else run.run())
    finally:
        await channels.close()


async def _source_client(
    link: str, target: SiteClient, agents: Mapping[str, Sequence[str]], channels: Channels
) -> SiteClient | None:
    record = (await target.describe_link(link)).record
    if target.name not in (record.source_site, record.target_site):
        raise OperationalFailure(f"link {link} joins {record.source_site} and {record.target_site}, not {target.name}")
    name = other_site(record, target.name)
    addresses = agents.get(name) or list(record.sites[name].agents)
    return SiteClient(name, addresses, channels) if addresses else None
