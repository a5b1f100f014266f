"""The plan of a drill: parses YAML into frozen models; errors name the file, the key, the value and
the accepted values.

A step is a mapping with one key, the verb; `STEPS` has all verbs. Durations are written `500ms`,
`10s`, `2m`. A plan contains actions and expectations. Addresses come from the environment
(`environment.py`), so that a plan fits any pair of sites.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, ValidationError

from dr.drill.plan.fault_verbs import (
    BreakNames,
    Cut,
    FillDisk,
    FreeDisk,
    Heal,
    Kill,
    Reset,
    Resume,
    Slow,
    Start,
    StepClock,
    Stop,
    Terminate,
)
from dr.drill.plan.load_verbs import (
    CreateTopics,
    FinishQuery,
    PauseLoad,
    ResumeLoad,
    StartGroup,
    StartLoad,
    StartQuery,
    StopGroup,
    StopLoad,
)
from dr.drill.plan.parts import DurationMs, PlanPart, PlanStep
from dr.drill.plan.site_verbs import Check, FailOver, Hold, Reconcile, Reinstate, SwitchOver, Wait
from runtime.process import OperationalFailure

STEPS: dict[str, type[PlanStep]] = {
    step.verb: step
    for step in (
        CreateTopics, StartLoad, PauseLoad, ResumeLoad, StopLoad, StartGroup, StopGroup, StartQuery, FinishQuery,
        Cut, Slow, Reset, Heal, Kill, Terminate, Stop, Resume, Start, FillDisk, FreeDisk, StepClock, BreakNames,
        FailOver, SwitchOver, Reinstate, Reconcile, Wait, Hold, Check,
    )
}  # fmt: skip


class Expectations(PlanPart):
    """The limits for the measurements at the end. The report shows every measurement, but judges
    only those with a limit here.
    """

    recovery_point_records_max: int | None = Field(default=None, ge=0)
    recovery_point_ms_max: DurationMs | None = None
    producer_recovery_ms_max: DurationMs | None = None
    consumer_recovery_ms_max: DurationMs | None = None
    consumer_catch_up_ms_max: DurationMs | None = None
    duplicates_max: int | None = Field(default=None, ge=0)
    gaps_max: int | None = Field(default=None, ge=0)
    order_violations_max: int | None = Field(default=None, ge=0)
    undelivered_max: int | None = Field(default=None, ge=0)
    redelivered_max: int | None = Field(default=None, ge=0)
    loss_is_as_accounted: bool | None = None
    sites_equal: tuple[str, ...] = Field(default=(), description="names of reconcile steps that must find equality")

    @property
    def is_stated(self) -> bool:
        """True if the plan states any expectation."""
        return bool(self.model_fields_set)


class SteadyState(PlanPart):
    """Conditions that must hold before the first step; otherwise every step is skipped."""

    is_protected: bool = False
    lag_records_max: int | None = Field(default=None, ge=0)
    within: DurationMs = 60_000


class StopConditions(PlanPart):
    """Conditions that end the drill early; faults are undone then as well."""

    lag_records_above: int | None = Field(default=None, ge=0)
    no_acknowledgement_for: DurationMs | None = Field(default=None, ge=1)


class DrillPlan(PlanPart):
    """A whole plan."""

    name: str = Field(min_length=1)
    description: str = ""
    link: str
    steps: tuple[PlanStep, ...] = Field(min_length=1)
    expect: Expectations = Expectations()
    steady_state: SteadyState = SteadyState()
    stop_when: StopConditions = StopConditions()
    restores: bool = Field(default=True, description="processes that the drill ended are started again when it ends")


Part = TypeVar("Part", bound=PlanPart)


def load_plan(path: Path) -> DrillPlan:
    """Read a plan. Raises OperationalFailure, which names file, key, value and what is accepted."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OperationalFailure(f"plan {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OperationalFailure(f"plan {path} is not YAML: {error}") from error
    return parse_plan(document, where=str(path))


def parse_plan(document: object, *, where: str) -> DrillPlan:
    """A plan from parsed YAML."""
    if not isinstance(document, dict):
        raise OperationalFailure(f"plan {where}: accepted is a mapping with name, link, steps and expect")
    steps = document.get("steps")
    if not isinstance(steps, list):
        raise OperationalFailure(f"plan {where}: steps={steps!r} is not usable: accepted is a list of steps")
    parsed = tuple(_step(entry, where, index) for index, entry in enumerate(steps))
    return _validated(DrillPlan, {**document, "steps": parsed}, where, "")


def _step(entry: object, where: str, index: int) -> PlanStep:
    step = {entry: {}} if isinstance(entry, str) else entry
    if not isinstance(step, dict) or len(step) != 1 or next(iter(step)) not in STEPS:
        raise OperationalFailure(
            f"plan {where}: steps[{index}]={entry!r} is not usable: accepted is one of {', '.join(STEPS)}"
        )
    verb, fields = next(iter(step.items()))
    return _validated(STEPS[verb], fields if fields is not None else {}, where, f"steps[{index}].{verb}")


def _validated(model: type[Part], fields: Any, where: str, prefix: str) -> Part:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (prefix, *first["loc"]) if part != "")
        if first["type"] == "extra_forbidden":
            accepted = f"unknown key; accepted: {', '.join(model.model_fields)}"
        else:
            accepted = first["msg"].removeprefix("Value error, ")
        value = "(not set)" if first["type"] == "missing" else repr(first["input"])
        raise OperationalFailure(f"plan {where}: {key}={value} is not usable: {accepted}") from error
