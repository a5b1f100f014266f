"""The results of a drill as data: steps, faults, failovers, lag over time, measurements and their
verdicts.

`execution.py` fills the result, `drill_report.py` writes it as JSON and HTML, and commands print
from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from google.protobuf.message import Message
from msgspec import to_builtins

from dr.drill.core.checkers import CatchUp
from dr.drill.core.expectations import Verdict
from dr.drill.core.measures import Measured
from dr.drill.lag import LagSample
from dr.failover.report import FailoverReport

PASSED, FAILED, STOPPED = "passed", "failed", "stopped"
ANOMALIES_KEPT_MAX = 100
"""Maximum number of examples of each anomaly in the JSON; the counts are always complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One finished step. `outcome` is done, failed, stopped or skipped."""

    title: str
    verb: str
    started_at_ms: int
    duration_ms: int
    outcome: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class FaultSpan:
    """One fault and its duration; `ended_at_ms` is 0 while it lasts."""

    title: str
    began_at_ms: int
    ended_at_ms: int = 0


@dataclass(slots=True, kw_only=True)
class DrillResult:
    """The result of a whole drill. `outcome` is passed, failed (an expectation, a step, a client or
    the restore) or stopped (by a person or a stop condition).
    """

    name: str
    description: str
    link: str
    started_at_ms: int
    ended_at_ms: int = 0
    outcome: str = FAILED
    reason: str = ""
    steps: list[StepResult] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)
    failovers: list[FailoverReport] = field(default_factory=list)
    reconciliations: dict[str, dict[str, Any]] = field(default_factory=dict)
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    lag: list[LagSample] = field(default_factory=list)
    measured: Measured | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    restore_problems: list[str] = field(default_factory=list)
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def is_passed(self) -> bool:
        """True if every step succeeded, every expectation was met, and all is put right."""
        return self.outcome == PASSED

    def to_json(self) -> dict[str, Any]:
        """Plain data. Long lists of anomalies are shortened to some examples and a count."""
        return {
            "name": self.name,
            "description": self.description,
            "link": self.link,
            "outcome": self.outcome,
            "reason": self.reason,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "measured": None if self.measured is None else _measured_json(self.measured),
            "steps": [asdict(step) for step in self.steps],
            "faults": [asdict(fault) for fault in self.faults],
            "failovers": [report.to_json() for report in self.failovers],
            "reconciliations": self.reconciliations,
            "queries": self.queries,
            "restore_problems": self.restore_problems,
            "lag": [to_builtins(sample, enc_hook=_message_json) for sample in self.lag],
            "rates": self.rates,
        }


def _message_json(value: Any) -> Any:
    """The fields of a message between processes, such as the use of a quarantine."""
    if not isinstance(value, Message):
        raise NotImplementedError(f"a report has no form for {type(value).__name__}")
    return {one.name: found for one, found in value.ListFields()}


def _measured_json(measured: Measured) -> Mapping[str, Any]:
    fields = asdict(measured)
    for name, value in tuple(fields.items()):
        if isinstance(value, tuple) and name not in ("snapshots", "catch_up"):
            fields[name] = {
                "count": len(value),
                "examples": [f"{item[0]} {item[1]}@{item[2]}: {item[3]}" for item in value[:ANOMALIES_KEPT_MAX]],
            }
    for name in ("producer_outage", "consumer_outage"):
        outage = getattr(measured, name)
        if outage is not None:
            fields[name]["duration_ms"] = outage.duration_ms
    caught_up = measured.catch_up
    fields["catch_up"] = None if caught_up is None else _catch_up_json(caught_up)
    return fields


def _catch_up_json(caught_up: CatchUp) -> Mapping[str, Any]:
    # JSON has no number for infinity: null says that the record was never delivered
    duration_ms = None if math.isinf(caught_up.duration_ms) else caught_up.duration_ms
    place = caught_up.place
    return {
        "healed_at_ms": caught_up.healed_at_ms,
        "topic": place.topic,
        "partition": place.partition,
        "offset": caught_up.offset,
        "duration_ms": duration_ms,
    }
