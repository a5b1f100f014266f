"""Executes the steps that concern both sites: failovers, reinstatements, reconciliations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import grpc
from msgspec import to_builtins
from msgspec.structs import replace

from dr.drill.drill_results import DrillResult
from dr.drill.environment import Environment
from dr.drill.lag import LagProbe
from dr.drill.plan.site_verbs import FailOver, Reconcile, Reinstate, SiteStep, SwitchOver
from dr.drill.steps.waiting import until
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.reconciliation import AS_ACCOUNTED, EQUAL, reconcile
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.mirror_pb2 import ReinstateCopiesRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSteps:
    """The moves and comparisons of one drill."""

    environment: Environment
    link: str
    directory: Path
    reconcile_command: Sequence[str]
    probe: LagProbe
    clock: Clock
    result: DrillResult
    note: Callable[[str], None]

    async def carry_out(self, step: SiteStep) -> str:
        """Execute the step; returns its result as a sentence."""
        match step:
            case FailOver() | SwitchOver():
                return await self._fail_over(step)
            case Reinstate():
                return await self._reinstate(step)
            case Reconcile():
                return await self._reconcile(step)
            case _:
                assert_never(step)

    async def _fail_over(self, step: FailOver | SwitchOver) -> str:
        policy = FailoverPolicy(drain_timeout_ms=step.drain_within, unavailability_max_ms=step.unavailability_max)
        match step:
            case FailOver():
                policy = replace(policy, lag_records_max=step.lag_records_max, accepts_data_loss=step.accepts_data_loss)
            case SwitchOver():
                policy = replace(policy, is_switchover=True)
            case _:
                assert_never(step)
        report = await failover(
            self.link,
            to_site=step.to,
            agents=self.environment.agents(),
            policy=policy,
            journal_path=self.directory / "failover.journal",
            progress=lambda name, reason: self.note(f"{name}: {reason}"),
            clock=self.clock,
        )
        self.result.failovers.append(report)
        if not report.is_done:
            raise OperationalFailure(f"{step.title} refused: {report.reason}")
        lost = 0 if report.account is None else report.account.known_lost_records
        exactly = "exactly" if report.account is not None and report.account.is_exact else "at least"
        return f"epoch {report.epoch}, {report.duration_ms} ms, {exactly} {lost} records lost"

    async def _reinstate(self, step: Reinstate) -> str:
        """Send the request to the standby's mirror until no copy is FAULTED."""
        truncated: dict[tuple[str, int], int] = {}

        async def is_reinstated() -> bool:
            sample = await self.probe.sample()
            standby = self.probe.standby(sample)
            mirror = self.environment.mirrors_of(self.link).get(standby)
            if mirror is None:
                raise OperationalFailure(f"the environment names no mirror of {self.link} that writes to {standby!r}")
            stub = self.probe.channels.mirror_admin(mirror.grpc)
            request = ReinstateCopiesRequest(link=self.link)
            try:
                reply = await stub.ReinstateCopies(request, timeout=step.within / 1000)
            except grpc.aio.AioRpcError:
                return False  # The mirror may have just started, or a site may not answer yet.
            for one in reply.partitions:
                if one.outcome == "reinstated":
                    truncated[one.topic, one.partition] = one.end_offset - one.from_offset
            return sample.mirror_state == "MIRRORING" and not sample.differing

        await until(is_reinstated, within_ms=step.within, what=f"{step.title}: copies still differ")
        return f"{sum(truncated.values())} records of {len(truncated)} partitions are in quarantine"

    async def _reconcile(self, step: Reconcile) -> str:
        entry = self.environment.link(self.link)
        folder = self.directory / f"reconcile-{step.name}"
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "link": self.link,
            "source": entry.source,
            "target": entry.target,
            "source_bootstrap": self.environment.bootstrap_servers(self.link, entry.source),
            "target_bootstrap": self.environment.bootstrap_servers(self.link, entry.target),
            "report_dir": str(folder),
        }
        accounts = [report.account for report in self.result.failovers if report.account is not None]
        found = await reconcile(
            [*self.reconcile_command, *(("--quick",) if step.quick else ())],
            values,
            log=folder / "log",
            within_ms=step.within,
            accounts=accounts,
            source_site=entry.source,
        )
        self.result.reconciliations[step.name] = {**to_builtins(found), "report_dir": folder.name}
        accepted = {"equal": (EQUAL,), "as_accounted": (EQUAL, AS_ACCOUNTED)}.get(step.expect)
        if accepted is not None and found.outcome not in accepted:
            raise OperationalFailure(f"the sites are {found.outcome}, expected {step.expect} ({folder})")
        return (
            f"{found.outcome}, {found.lost_records} records only at the site that was left"
            if found.findings
            else found.outcome
        )
