"""Checks of a plan against the environment, before the first fault: a plan that cannot be executed,
or whose result would prove nothing, does no harm.
"""

from __future__ import annotations

from collections import Counter

from dr.drill.environment import Environment
from dr.drill.faults import NetworkFaults
from dr.drill.plan.drill_plan import DrillPlan
from dr.drill.plan.fault_verbs import Cut, DiskStep, ProcessStep, Reset, Slow
from dr.drill.plan.load_verbs import StartLoad, StartQuery
from dr.drill.plan.site_verbs import FailOver, Reconcile, SwitchOver
from runtime.process import OperationalFailure


def refuse_what_cannot_be(
    plan: DrillPlan, environment: Environment, *, can_reconcile: bool = True, can_query: bool = True
) -> None:
    """Check, before the first fault, that the environment has everything that the plan names, and
    that a command is given for its reconciliations and queries. Raises OperationalFailure.
    """
    link = environment.link(plan.link)
    network = NetworkFaults(environment, plan.link)
    for step in plan.steps:
        site = getattr(step, "site", "")
        if isinstance(step, FailOver | SwitchOver) and step.to not in (link.source, link.target):
            raise OperationalFailure(f"{step.title}: to={step.to!r}: accepted is one of {link.source}, {link.target}")
        if isinstance(step, Cut | Slow | Reset):
            network.selected(kind=step.kind, site=step.site)
        elif isinstance(step, ProcessStep | DiskStep):
            _refuse_what_cannot_be_hit(step, environment)
        elif host := getattr(step, "host", ""):
            environment.host(host)
        elif site and site not in environment.sites:
            raise OperationalFailure(
                f"{step.title}: site {site!r} is not in the environment: {', '.join(environment.sites)}"
            )
    verbs = {step.verb for step in plan.steps}
    _refuse_what_is_not_judged(plan)
    if Reconcile.verb in verbs and not can_reconcile:
        raise OperationalFailure("the plan has a reconcile step, but no reconcile command is given")
    if StartQuery.verb in verbs and not can_query:
        raise OperationalFailure("the plan has a start_query step, but no query command is given")


def _refuse_what_cannot_be_hit(step: ProcessStep | DiskStep, environment: Environment) -> None:
    for process in environment.processes(process=step.process, site=step.site):
        if process.host:
            environment.host(process.host)
        if not process.command:
            # Its command line shows that it is no other process with the same pid.
            raise OperationalFailure(f"{step.title}: the environment gives no command for {process.name}")


def _refuse_what_is_not_judged(plan: DrillPlan) -> None:
    """Refuse expectations that every run would meet, because no step finds anything, and results
    that replace each other.
    """
    of_clients = sorted(plan.expect.model_fields_set - {"sites_equal"})
    if of_clients and not any(isinstance(step, StartLoad) for step in plan.steps):
        raise OperationalFailure(f"expect.{of_clients[0]}: the plan has no start_load step, so nothing is measured")
    compared = [step.name for step in plan.steps if isinstance(step, Reconcile)]
    for name, steps in Counter(compared).items():
        if steps > 1:
            # Only the last result would be judged and kept.
            raise OperationalFailure(
                f"the plan has {steps} reconcile steps named {name!r}: give each a name of its own"
            )
    for name in plan.expect.sites_equal:
        if name not in compared:
            raise OperationalFailure(f"expect.sites_equal: the plan has no reconcile step named {name!r}")
