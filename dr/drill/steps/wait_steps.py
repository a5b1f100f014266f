"""Executes the steps that wait, each for one condition with a deadline."""

from __future__ import annotations

from dataclasses import dataclass

from dr.drill.drill_clients import DrillClients
from dr.drill.drill_queries import DrillQueries
from dr.drill.lag import LagProbe
from dr.drill.plan.site_verbs import Wait
from dr.drill.steps.waiting import until
from runtime.process import OperationalFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSteps:
    """The waits of one drill."""

    clients: DrillClients
    queries: DrillQueries
    probe: LagProbe

    async def carry_out(self, step: Wait) -> str:
        """Wait until the condition holds. Raises OperationalFailure on timeout."""
        self.clients.collect()
        acknowledged, delivered = len(self.clients.acknowledged), self.clients.delivered_count

        async def holds() -> bool:
            self.clients.check_alive()
            self.queries.check_alive()
            self.clients.collect()
            return await self._holds(step, acknowledged, delivered)

        await until(holds, within_ms=step.within, what=f"{step.title}: the condition does not hold")
        return ""

    async def _holds(self, step: Wait, acknowledged: int, delivered: int) -> bool:
        if step.lag_records_max is not None:
            sample = await self.probe.sample()
            lag = sample.lag_records
            return lag is not None and lag <= step.lag_records_max and not sample.unreachable
        if step.is_protected:
            sample = await self.probe.sample()
            verdict = sample.protection
            return verdict is not None and verdict.epoch == sample.epoch and not verdict.reason
        if step.acknowledged is not None:
            return len(self.clients.acknowledged) >= acknowledged + step.acknowledged
        if step.delivered is not None:
            return self.clients.delivered_count >= delivered + step.delivered
        if step.is_delivered_all:
            return self.clients.is_delivered_all()
        if step.query_stored:
            return self.queries.has_stored(step.query_stored)
        if step.load_ended not in self.clients.producers:
            raise OperationalFailure(f"load {step.load_ended!r} was not started")
        return not self.clients.producers[step.load_ended].is_running
