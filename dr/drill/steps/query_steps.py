"""Executes the steps that start and finish streaming queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from dr.drill.core.query_losses import judge_lost
from dr.drill.drill_queries import DrillQueries
from dr.drill.drill_results import DrillResult
from dr.drill.environment import Environment
from dr.drill.plan.load_verbs import FinishQuery, QueryStep, StartQuery
from runtime.process import OperationalFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySteps:
    """The queries of one drill."""

    environment: Environment
    link: str
    queries: DrillQueries
    result: DrillResult

    async def carry_out(self, step: QueryStep) -> str:
        """Execute the step; returns its result as a sentence."""
        match step:
            case StartQuery():
                bootstrap = self.environment.bootstrap_servers(self.link, step.site)
                has_moved = self.queries.start(step.name, bootstrap=bootstrap, topics=step.topics)
                return "it goes on from its checkpoint" if has_moved else ""
            case FinishQuery():
                return await self._finish(step)
            case _:
                assert_never(step)

    async def _finish(self, step: FinishQuery) -> str:
        found = await self.queries.finish(step.name, within_ms=step.within)
        self.result.queries[step.name] = found
        counts = f"{found['stored']} records stored, {found['missing']} missing, {found['repeated']} repeated"
        if found["missing"] or found["repeated"]:
            raise OperationalFailure(f"{step.title}: {counts}")
        accounts = [report.account for report in self.result.failovers if report.account is not None]
        judged = judge_lost(found["lost_from"], accounts)
        if judged.problems:
            raise OperationalFailure(f"{step.title}: {counts}; {'; '.join(judged.problems)}")
        number = "" if judged.is_number_known else ", of an account that has no exact number"
        return f"{counts}, {found['lost']} that the failover lost{number}"
