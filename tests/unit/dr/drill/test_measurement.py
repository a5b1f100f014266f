"""The fault whose outage a drill measures."""

from __future__ import annotations

from dr.drill.drill_results import DrillResult, FaultSpan, StepResult
from dr.drill.measurement import _measured_fault


def result_of(*verbs: str, faults: list[FaultSpan]) -> DrillResult:
    steps = [
        StepResult(title=verb, verb=verb, started_at_ms=100 * (1 + at), duration_ms=1, outcome="done")
        for at, verb in enumerate(verbs)
    ]
    return DrillResult(name="n", description="", link="a-b", started_at_ms=0, steps=steps, faults=faults)


def test_a_switchover_without_a_fault_is_measured() -> None:
    assert _measured_fault(result_of("hold", faults=[])) is None
    assert _measured_fault(result_of("hold", "switch_over", "switch_over", faults=[])) == ("switchover", 200)
    kill = FaultSpan(title="kill site a", began_at_ms=50, ended_at_ms=60)
    assert _measured_fault(result_of("hold", "switch_over", faults=[kill])) == ("kill site a", 50)
    assert _measured_fault(result_of("fail_over", "switch_over", faults=[])) == ("failover", 100)
