"""Measures a drill: reads the log of the active site and compares it with the answers that the
clients of the drill have.

Every `check` step and the end of a drill call `measure_drill`.
"""

from __future__ import annotations

import asyncio

from dr.drill.core.history import LogRecord
from dr.drill.core.measures import Measured, measure
from dr.drill.drill_results import DrillResult, FaultSpan
from dr.drill.environment import Environment
from dr.drill.plan.site_verbs import FailOver, SwitchOver
from dr.drill.steps.stage import DrillStage
from runtime.process import OperationalFailure
from wire.rules.links import carries_topic

READ_LOG_WITHIN_S = 60


async def measure_drill(stage: DrillStage) -> Measured:
    """Read the active site's log and count; the drill's result keeps the newest measurement. Topics
    that the link does not mirror are left out.

    Raises OperationalFailure if no site of the link answers or the log cannot be read.
    """
    clients, result = stage.clients, stage.result
    clients.collect()
    sample = await stage.probe.sample()
    if sample.active_site not in stage.environment.sites:
        raise OperationalFailure("no site of the link answers: nothing can be measured")
    record = (await stage.probe.client(sample.active_site).describe_link(stage.link, is_brief=True)).record
    carried = [ack for ack in clients.acknowledged if carries_topic(record, ack.topic)]
    topics = tuple(sorted({ack.topic for ack in carried}))
    log = await asyncio.to_thread(_read_log, stage.environment, sample.active_site, topics)
    measured = await asyncio.to_thread(
        measure,
        acknowledged=carried,
        failed=len(clients.failed),
        delivered={group: list(given) for group, given in clients.delivered.items()},
        log=log,
        accounts=[report.account for report in result.failovers if report.account is not None],
        fault=_measured_fault(result),
        healed_at_ms=[fault.ended_at_ms for fault in result.faults if fault.ended_at_ms],
        ends_at_ms=stage.clock.now_ms(),
        reconciliations={name: found["outcome"] for name, found in result.reconciliations.items()},
        sending_until_ms=clients.sending_until_ms(stage.clock.now_ms()),
    )
    result.measured = measured
    return measured


def _read_log(environment: Environment, site: str, topics: tuple[str, ...]) -> list[LogRecord]:
    # The import of the Kafka client takes time that `antipode drill list` need not spend.
    from dr.drill.load import read_log

    found = read_log(
        environment.sites[site].bootstrap_servers,
        topics,
        within_s=READ_LOG_WITHIN_S,
        client_config=environment.admin_client_config,
    )
    return [LogRecord(site, *record) for record in found]


def _measured_fault(result: DrillResult) -> tuple[str, float] | None:
    """The fault whose outage is measured: the last one before the failover, the failover itself if
    there was no fault, otherwise the last fault, or the first switchover.
    """
    switched = [step.started_at_ms for step in result.steps if step.verb == FailOver.verb]
    if switched:
        before = [fault for fault in result.faults if fault.began_at_ms <= switched[0] and _lasts(fault, switched[0])]
        return (before[-1].title, before[-1].began_at_ms) if before else ("failover", switched[0])
    faults = result.faults
    if faults:
        return faults[-1].title, faults[-1].began_at_ms
    planned = [step.started_at_ms for step in result.steps if step.verb == SwitchOver.verb]
    return ("switchover", planned[0]) if planned else None


def _lasts(fault: FaultSpan, at_ms: int) -> bool:
    return not fault.ended_at_ms or fault.ended_at_ms >= at_ms
