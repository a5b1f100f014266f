"""Executes one step of a plan against the environment.

Every wait is for a condition and has a deadline; only `hold` is a plain pause, for the duration of
the fault. A step that fails raises OperationalFailure; the drill (`execution.py`) then undoes its
faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dr.drill.drill_clients import DrillClients
from dr.drill.drill_queries import DrillQueries
from dr.drill.drill_results import DrillResult
from dr.drill.environment import Environment
from dr.drill.faults import HostFaults, NetworkFaults, ProcessFaults
from dr.drill.lag import LagProbe
from dr.drill.plan.fault_verbs import FaultStep
from dr.drill.plan.load_verbs import LoadStep, QueryStep
from dr.drill.plan.parts import PlanStep
from dr.drill.plan.site_verbs import Hold, SiteStep, Wait
from dr.drill.steps.fault_steps import FaultSteps
from dr.drill.steps.load_steps import LoadSteps
from dr.drill.steps.query_steps import QuerySteps
from dr.drill.steps.serving import Serving
from dr.drill.steps.site_steps import SiteSteps
from dr.drill.steps.wait_steps import WaitSteps
from dr.sites.channels import Channels
from runtime.clock import Clock


@dataclass(slots=True, kw_only=True)
class DrillStage:
    """All parts that a step may use; one for each drill. `note` shows how a long step goes on."""

    environment: Environment
    link: str
    directory: Path
    reconcile_command: Sequence[str]
    clients: DrillClients
    queries: DrillQueries
    network: NetworkFaults
    processes: ProcessFaults
    hosts: HostFaults
    probe: LagProbe
    channels: Channels
    clock: Clock
    result: DrillResult
    note: Callable[[str], None]
    serving: Serving = field(init=False)
    _load: LoadSteps = field(init=False)
    _queries: QuerySteps = field(init=False)
    _faults: FaultSteps = field(init=False)
    _sites: SiteSteps = field(init=False)
    _waits: WaitSteps = field(init=False)

    def __post_init__(self) -> None:
        self.serving = Serving(environment=self.environment, link=self.link, probe=self.probe, channels=self.channels)
        self._load = LoadSteps(environment=self.environment, link=self.link, clients=self.clients)
        self._queries = QuerySteps(
            environment=self.environment, link=self.link, queries=self.queries, result=self.result
        )
        self._faults = FaultSteps(
            environment=self.environment,
            network=self.network,
            processes=self.processes,
            hosts=self.hosts,
            serving=self.serving,
            clock=self.clock,
            result=self.result,
        )
        self._sites = SiteSteps(
            environment=self.environment,
            link=self.link,
            directory=self.directory,
            reconcile_command=self.reconcile_command,
            probe=self.probe,
            clock=self.clock,
            result=self.result,
            note=self.note,
        )
        self._waits = WaitSteps(clients=self.clients, queries=self.queries, probe=self.probe)

    async def carry_out(self, step: PlanStep) -> str:
        """Execute the step; returns its result as a sentence, empty if there is nothing to
        report.
        """
        if isinstance(step, LoadStep):
            return await self._load.carry_out(step)
        if isinstance(step, QueryStep):
            return await self._queries.carry_out(step)
        if isinstance(step, FaultStep):
            return await self._faults.carry_out(step)
        if isinstance(step, SiteStep):
            return await self._sites.carry_out(step)
        if isinstance(step, Wait):
            return await self._waits.carry_out(step)
        if isinstance(step, Hold):
            await asyncio.sleep(step.duration / 1000)
        return ""
