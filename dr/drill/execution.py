"""Runs a drill: executes the steps of a plan in order and watches the lag meanwhile. However the
drill ends, it undoes every fault and writes the report.

`antipode drill run` calls `run_drill`. After a failed step, or a stop from outside, the other steps
are skipped; then the faults are undone, the clients are ended, the measurements are made as far as
possible, and the report is written. The journal has each step before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dr.drill.core.expectations import Limits, judge
from dr.drill.core.plots import rate_points
from dr.drill.drill_clients import DrillClients
from dr.drill.drill_queries import DrillQueries
from dr.drill.drill_report import ReportFiles, write_report
from dr.drill.drill_results import FAILED, PASSED, STOPPED, DrillResult, StepResult
from dr.drill.environment import Environment
from dr.drill.faults import HostFaults, NetworkFaults, ProcessFaults
from dr.drill.lag import LagProbe, LagSample
from dr.drill.measurement import measure_drill
from dr.drill.plan.drill_plan import DrillPlan
from dr.drill.plan.fault_verbs import FreeDisk, Heal, Resume, Start
from dr.drill.plan.parts import PlanStep
from dr.drill.plan.site_verbs import Check, Wait
from dr.drill.plan_checks import refuse_what_cannot_be
from dr.drill.steps.stage import DrillStage
from dr.failover.journal import Journal
from dr.sites.channels import Channels
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from runtime.supervision import to_its_end

RATE_BUCKET_MS = 500
RESTORE_WITHIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The content of the live view: the current step and the current numbers."""

    step: str
    step_number: int
    step_count: int
    elapsed_ms: int
    note: str
    lag: LagSample | None
    acknowledged: int
    delivered: int
    finished: tuple[StepResult, ...] = ()


View = Callable[[Glance], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Programs that a drill starts for its steps.

    `reconcile` may contain {link}, {source}, {target}, {source_bootstrap}, {target_bootstrap} and
    {report_dir}; `query` {bootstrap}, {topics} (joined by commas) and {directory}
    (`drill_queries.py`).
    """

    reconcile: Sequence[str] = ()
    query: Sequence[str] = ()


NO_COMMANDS: Final = Commands()


class DrillRun:
    """One run of one plan; call `run` once."""

    def __init__(
        self,
        plan: DrillPlan,
        environment: Environment,
        *,
        directory: Path,
        commands: Commands = NO_COMMANDS,
        view: View | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._directory = directory
        self._commands = commands
        self._view = view
        self._clock = clock or SystemClock()
        self._note = ""
        self._stopped_because = ""
        self._step: PlanStep = plan.steps[0]
        self._number = 0
        self._result = DrillResult(
            name=plan.name, description=plan.description, link=plan.link, started_at_ms=self._clock.now_ms()
        )

    async def run(self, stop: asyncio.Event) -> tuple[DrillResult, ReportFiles]:
        """Execute the plan until its end, a failure, or `stop`. Returns the result and the paths of
        the report.
        """
        channels = Channels()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            stage = self._stage(channels)
            # The plan is checked before the first fault, so that a plan that cannot be executed
            # does no harm.
            refuse_what_cannot_be(
                self._plan,
                self._environment,
                can_reconcile=bool(self._commands.reconcile),
                can_query=bool(self._commands.query),
            )
            with Journal(self._directory / "drill.journal", self._clock) as journal:
                try:
                    async with self._watched(stage, stop):
                        await self._steps(stage, journal, stop)
                finally:
                    # To its end, so that every fault is undone even if the run is cancelled
                    # repeatedly.
                    await to_its_end(asyncio.ensure_future(self._restore(stage, journal)))
            await self._conclude(stage)
            return self._result, await asyncio.to_thread(write_report, self._result, self._directory)
        except OSError as error:
            # For instance, the disk of the report is full.
            raise OperationalFailure(f"the drill has no report: {error}") from error
        finally:
            await channels.close()

    def _stage(self, channels: Channels) -> DrillStage:
        return DrillStage(
            environment=self._environment,
            link=self._plan.link,
            directory=self._directory,
            reconcile_command=self._commands.reconcile,
            clients=DrillClients(self._directory / "clients"),
            queries=DrillQueries(self._directory / "queries", self._commands.query),
            network=NetworkFaults(self._environment, self._plan.link),
            processes=ProcessFaults(self._environment),
            hosts=HostFaults(self._environment),
            probe=LagProbe(self._environment, self._plan.link, channels, self._clock),
            channels=channels,
            clock=self._clock,
            result=self._result,
            note=self._take_note,
        )

    def _take_note(self, text: str) -> None:
        self._note = text

    # --- steps

    async def _check_steady_state(self, stage: DrillStage, stop: asyncio.Event) -> None:
        """Skip every step if the sites are not in the state that the plan requires before the first
        one.
        """
        wanted = self._plan.steady_state
        within = f"{wanted.within}ms"
        checks = []
        if wanted.is_protected:
            checks.append(Wait.model_validate({"is_protected": True, "within": within}))
        if wanted.lag_records_max is not None:
            checks.append(Wait.model_validate({"lag_records_max": wanted.lag_records_max, "within": within}))
        for check in checks:
            outcome, detail = await self._one(stage, check, stop)
            if outcome == "stopped":
                self._result.outcome, self._result.reason = STOPPED, f"steady state: {detail}"
                return
            if outcome != "done":
                self._result.reason = f"no steady state before the drill: {detail}"
                return

    def _stop_condition(self, stage: DrillStage, sample: LagSample) -> str:
        """Describe the plan's stop condition that holds; empty for none."""
        limits = self._plan.stop_when
        lag = sample.lag_records
        if limits.lag_records_above is not None and lag is not None and lag > limits.lag_records_above:
            return f"the standby is {lag} records behind, more than {limits.lag_records_above}"
        silence_ms = stage.clients.silence_ms(self._clock.now_ms())
        if limits.no_acknowledgement_for is not None and silence_ms > limits.no_acknowledgement_for:
            return f"nothing was acknowledged for {silence_ms:.0f} ms"
        return ""

    async def _steps(self, stage: DrillStage, journal: Journal, stop: asyncio.Event) -> None:
        await self._check_steady_state(stage, stop)
        for number, step in enumerate(self._plan.steps, 1):
            self._step, self._number, self._note = step, number, ""
            if self._result.reason:
                # The report also names the steps that were skipped.
                self._append(step, self._clock.now_ms(), "skipped", "")
                continue
            self._write(journal, "step begins", step=step.title)
            started_at_ms = self._clock.now_ms()
            if self._result.reason:
                self._append(step, started_at_ms, "skipped", "")
                continue
            outcome, detail = await self._one(stage, step, stop)
            self._append(step, started_at_ms, outcome, detail)
            self._write(journal, "step ends", step=step.title, outcome=outcome, detail=detail)
            if outcome != "done":
                self._result.reason = f"{step.title}: {detail}"
                self._result.outcome = STOPPED if outcome == "stopped" else FAILED
        if not self._result.reason:
            # A client that failed early has seen no anomaly, and proves nothing.
            try:
                stage.clients.check_alive()
                stage.queries.check_alive()
            except OperationalFailure as failure:
                self._result.reason = str(failure)

    async def _one(self, stage: DrillStage, step: PlanStep, stop: asyncio.Event) -> tuple[str, str]:
        """Execute the step, unless `stop` is set first."""
        if stop.is_set():
            return "stopped", self._stopped_because or "stopped from outside"
        work = asyncio.ensure_future(self._check(stage) if isinstance(step, Check) else stage.carry_out(step))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # The step may have ended at the same moment; then its result counts and not the stop.
        stopping.cancel()
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return "stopped", self._stopped_because or "stopped from outside"
        try:
            return "done", work.result()
        # OSError: for instance, a process of the environment belongs to another user.
        except (OperationalFailure, OSError) as failure:
            return "failed", str(failure)

    def _append(self, step: PlanStep, started_at_ms: int, outcome: str, detail: str) -> None:
        self._result.steps.append(
            StepResult(
                title=step.title,
                verb=step.verb,
                started_at_ms=started_at_ms,
                duration_ms=self._clock.now_ms() - started_at_ms,
                outcome=outcome,
                detail=detail,
            )
        )

    # --- watching

    @contextlib.asynccontextmanager
    async def _watched(self, stage: DrillStage, stop: asyncio.Event) -> AsyncIterator[None]:
        def take(sample: LagSample) -> None:
            self._result.lag.append(sample)
            stage.clients.collect()
            if not stop.is_set() and (reason := self._stop_condition(stage, sample)):
                self._stopped_because = f"stop condition: {reason}"
                stop.set()
            self._show(stage)

        def end(watched: asyncio.Task[None]) -> None:
            if not watched.cancelled():
                # Nothing would look at the stop conditions any more.
                self._stopped_because = "the lag is not watched any more"
                stop.set()

        watching = asyncio.create_task(stage.probe.follow(take), name="lag")
        watching.add_done_callback(end)
        try:
            yield
        finally:
            watching.cancel()
            (outcome,) = await asyncio.gather(watching, return_exceptions=True)
            # A defect in the sampling must not silently switch off the stop conditions.
            if isinstance(outcome, Exception):
                raise outcome

    def _show(self, stage: DrillStage) -> None:
        if self._view is None:
            return
        try:
            self._view(self._glance(stage))
        except OSError:
            # The terminal is lost. The stop conditions are still looked at, and a signal ends the
            # drill.
            self._view = None

    def _glance(self, stage: DrillStage) -> Glance:
        return Glance(
            step=self._step.title,
            step_number=self._number,
            step_count=len(self._plan.steps),
            elapsed_ms=self._clock.now_ms() - self._result.started_at_ms,
            note=self._note,
            lag=stage.probe.latest,
            acknowledged=len(stage.clients.acknowledged),
            delivered=stage.clients.delivered_count,
            finished=tuple(self._result.steps),
        )

    # --- the end

    async def _restore(self, stage: DrillStage, journal: Journal) -> None:
        """Undo every fault as far as possible; the report names each failure."""
        self._write(journal, "restore begins")
        # The clients end first: they would count the repair as an outage.
        stage.clients.end_all()
        stage.queries.end_all()
        problems: list[str] = []
        try:
            await asyncio.to_thread(stage.network.heal)
        except OperationalFailure as failure:
            problems.append(str(failure))
        problems += await asyncio.to_thread(stage.hosts.restore)
        started = list(stage.processes.ended) if self._plan.restores else []
        problems += await asyncio.to_thread(stage.processes.restore, starts_ended=self._plan.restores)
        # The measurements wait for the restored processes: a report about sites that are partly
        # down would mislead.
        try:
            await stage.serving.wait(started, within_ms=RESTORE_WITHIN_MS, what="restored processes")
        except OperationalFailure as failure:
            problems.append(str(failure))
        stage.clients.collect()
        self._result.restore_problems = problems
        self._write(journal, "restore ends", problems=problems)

    def _write(self, journal: Journal, event: str, **fields: object) -> None:
        """Write to the journal. A full disk ends the drill, and keeps no fault in place."""
        try:
            journal.write(event, **fields)
        except OSError as error:
            self._result.reason = self._result.reason or f"the journal cannot be written: {error}"

    async def _check(self, stage: DrillStage) -> str:
        measured = await measure_drill(stage)
        return (
            f"of mirrored topics {measured.acknowledged} acknowledged, {len(measured.missing)} missing, "
            f"{len(measured.duplicates)} duplicates, {len(measured.gaps)} gaps, {len(measured.order_violations)} out of "
            f"order, {measured.redelivered} delivered again"
        )

    async def _conclude(self, stage: DrillStage) -> None:
        """Measure, unless the plan's last check has done so, then judge and set the outcome."""
        is_judged = bool(stage.clients.producers) or (self._plan.expect.is_stated and not self._result.reason)
        if is_judged and (self._result.measured is None or not self._ends_with_check()):
            try:
                await measure_drill(stage)
            except OperationalFailure as failure:
                self._result.reason = self._result.reason or f"the end cannot be measured: {failure}"
        result = self._result
        result.ended_at_ms = self._clock.now_ms()
        acknowledged = [ack.acknowledged_at_ms for ack in stage.clients.acknowledged]
        delivered = [given.at_ms for group in stage.clients.delivered.values() for given in group]
        for name, times in (("acknowledged", acknowledged), ("delivered", delivered)):
            result.rates[name] = rate_points(
                times, from_ms=result.started_at_ms, until_ms=result.ended_at_ms, bucket_ms=RATE_BUCKET_MS
            )
        if result.measured is not None:
            result.verdicts = judge(Limits(**self._plan.expect.model_dump()), result.measured)
        failed = [verdict.name for verdict in result.verdicts if not verdict.is_met]
        if not result.reason and failed:
            result.reason = f"not as expected: {', '.join(failed)}"
        if not result.reason and result.restore_problems:
            result.reason = f"not put right: {'; '.join(result.restore_problems)}"
        if not result.reason:
            result.outcome = PASSED

    def _ends_with_check(self) -> bool:
        verbs = [
            step.verb
            for step in self._plan.steps
            if step.verb not in (Heal.verb, FreeDisk.verb, Resume.verb, Start.verb)
        ]
        return verbs[-1] == Check.verb


async def run_drill(
    plan: DrillPlan,
    environment: Environment,
    *,
    directory: Path,
    stop: asyncio.Event,
    commands: Commands = NO_COMMANDS,
    view: View | None = None,
) -> tuple[DrillResult, ReportFiles]:
    """Run a plan against the environment and write the report into `directory`. Set `stop` to end
    the drill early; faults are undone then as well.
    """
    run = DrillRun(plan, environment, directory=directory, commands=commands, view=view)
    return await run.run(stop)
