"""A drill's plan: YAML in, frozen models out, errors that name the file, the key, the value and
what is accepted.

A step is a mapping with one key, the verb; `STEPS` has them all. Durations are `500ms`, `10s`,
`2m`. A plan says what is done and what is expected; where things are comes from the environment
(`environment.py`), so that a plan fits any pair of sites.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from runtime.process import OperationalFailure

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000}


def parse_duration_ms(value: object) -> object:
    """Milliseconds of `10s`; anything else is left for the model to refuse."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return round(float(match[1]) * _UNIT_MS[match[2]])
    raise ValueError("accepted: a duration such as 500ms, 10s or 2m")


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms), Field(ge=0)]


class PlanPart(BaseModel):
    """Base of all parts: frozen, and no key that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanStep(PlanPart):
    """Base of the steps; `verb` is the key in the file, `title` what reports call it."""

    verb: ClassVar[str]

    @property
    def title(self) -> str:
        """The step's name in reports and on the screen."""
        return self.verb.replace("_", " ")


class PlannedTopic(PlanPart):
    """One topic to create."""

    name: str
    partitions: int = Field(default=1, ge=1, le=1000)
    configs: dict[str, str] = Field(default_factory=dict)


class CreateTopics(PlanStep):
    """Create topics at a site (default: the active one)."""

    verb: ClassVar[str] = "create_topics"
    site: str = ""
    topics: tuple[PlannedTopic, ...] = Field(min_length=1)


class StartLoad(PlanStep):
    """Start a producer: made-up records, or the departures of a data set in time order."""

    verb: ClassVar[str] = "start_load"
    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    kind: Literal["records", "dataset"] = "records"
    topic: str = "drill"
    site: str = ""
    records_per_second: float = Field(default=0, ge=0, description="0: as fast as it goes")
    count: int = Field(default=0, ge=0, description="0: until stopped, or the end of the data set")
    size_bytes: int = Field(default=200, ge=1, le=1_000_000)
    keys: int = Field(default=1000, ge=1)
    settings: dict[str, str] = Field(default_factory=dict, description="librdkafka settings")

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"start load {self.name}"


class StopLoad(PlanStep):
    """Stop a producer after it has flushed, or wait for the end of its data."""

    verb: ClassVar[str] = "stop_load"
    name: str
    within: DurationMs = 60_000

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"stop load {self.name}"


class PauseLoad(PlanStep):
    """Freeze a producer: nothing new comes, what was sent is acknowledged when it goes on."""

    verb: ClassVar[str] = "pause_load"
    name: str

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"pause load {self.name}"


class ResumeLoad(PlanStep):
    """Resume a paused producer."""

    verb: ClassVar[str] = "resume_load"
    name: str

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"resume load {self.name}"


class StartGroup(PlanStep):
    """Start a consumer group that commits as it reads."""

    verb: ClassVar[str] = "start_group"
    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    topics: tuple[str, ...] = Field(min_length=1)
    members: int = Field(default=1, ge=1, le=16)
    site: str = ""
    settings: dict[str, str] = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title with the group's name."""
        return f"start group {self.name}"


class StopGroup(PlanStep):
    """Stop a group's members after they have committed."""

    verb: ClassVar[str] = "stop_group"
    name: str
    within: DurationMs = 30_000


class Cut(PlanStep):
    """Cut the link: connections end and new ones are refused; with `is_silent` bytes vanish
    instead.
    """

    verb: ClassVar[str] = "cut"
    is_silent: bool = False
    direction: Literal["both", "towards", "from"] = Field(
        default="both", description="one way only: what goes towards the site behind the proxy, or comes from it"
    )
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = Field(default="", description="only proxies in front of this site")

    @model_validator(mode="after")
    def _one_way_is_silent(self) -> Self:
        if self.direction != "both" and not self.is_silent:
            raise ValueError("a connection ends in both directions; accepted for one way: is_silent: true")
        return self


class Slow(PlanStep):
    """Slow the link down."""

    verb: ClassVar[str] = "slow"
    latency: DurationMs = 0
    jitter: DurationMs = 0
    rate_kb_per_s: int = Field(default=0, ge=0, description="0: no limit")
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = ""


class Reset(PlanStep):
    """Reset connections of the link, at once or after so many bytes (in the middle of a batch)."""

    verb: ClassVar[str] = "reset"
    after_bytes: int = Field(default=0, ge=0)
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = ""


class Heal(PlanStep):
    """Take every fault off the link."""

    verb: ClassVar[str] = "heal"


class _AimedStep(PlanStep):
    """A step that aims at one process or at a whole site."""

    process: str = ""
    site: str = ""

    @model_validator(mode="after")
    def _one_aim(self) -> _AimedStep:
        if bool(self.process) == bool(self.site):
            raise ValueError("accepted: either process or site")
        return self

    @property
    def title(self) -> str:
        """The title with the target."""
        return f"{self.verb} {self.process or f'site {self.site}'}"


class Kill(_AimedStep):
    """kill -9."""

    verb: ClassVar[str] = "kill"
    may_stay_down: bool = Field(default=False, description="the drill's end does not start it again")


class Terminate(_AimedStep):
    """SIGTERM, an orderly end."""

    verb: ClassVar[str] = "terminate"
    within: DurationMs = 20_000
    may_stay_down: bool = False


class Stop(_AimedStep):
    """SIGSTOP: the process stands still with its connections open."""

    verb: ClassVar[str] = "stop"


class Resume(_AimedStep):
    """SIGCONT."""

    verb: ClassVar[str] = "resume"


class Start(_AimedStep):
    """Start again what was killed, and wait until it serves."""

    verb: ClassVar[str] = "start"
    within: DurationMs = 60_000


class FillDisk(_AimedStep):
    """Let the processes write to no file any more, as on a full disk."""

    verb: ClassVar[str] = "fill_disk"

    @property
    def title(self) -> str:
        """The title with the target."""
        return f"fill the disk of {self.process or f'site {self.site}'}"


class FreeDisk(_AimedStep):
    """Let the processes write to files again."""

    verb: ClassVar[str] = "free_disk"

    @property
    def title(self) -> str:
        """The title with the target."""
        return f"free the disk of {self.process or f'site {self.site}'}"


class StepClock(PlanStep):
    """Set the clock of a host forward or back; the drill's end sets it back."""

    verb: ClassVar[str] = "step_clock"
    host: str
    by_seconds: int = Field(ge=-86_400, le=86_400)

    @property
    def title(self) -> str:
        """The title with the host."""
        return f"step the clock of {self.host} by {self.by_seconds} s"


class BreakNames(PlanStep):
    """Let a host find wrong addresses for names, until `heal`."""

    verb: ClassVar[str] = "break_names"
    host: str
    names: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")], ...] = Field(min_length=1)

    @property
    def title(self) -> str:
        """The title with the host."""
        return f"break names at {self.host}"


class FailOver(PlanStep):
    """Make the other site active."""

    verb: ClassVar[str] = "fail_over"
    to: str
    accepts_data_loss: bool = False
    lag_records_max: int | None = None
    drain_within: DurationMs = 30_000
    unavailability_max: DurationMs = 5_000

    @property
    def title(self) -> str:
        """The title with the site."""
        return f"fail over to {self.to}"


class SwitchOver(PlanStep):
    """Make the other site active as planned work: both sites alive, nothing lost."""

    verb: ClassVar[str] = "switch_over"
    to: str
    drain_within: DurationMs = 30_000
    unavailability_max: DurationMs = 5_000

    @property
    def title(self) -> str:
        """The title with the site."""
        return f"switch over to {self.to}"


class Reinstate(PlanStep):
    """Have a site that was failed away from follow again: its copies are truncated to the shared
    history, and what they have above is in quarantine.
    """

    verb: ClassVar[str] = "reinstate"
    within: DurationMs = 60_000


class Reconcile(PlanStep):
    """Compare both sites batch by batch, or with `quick` by the digests that brokers keep;
    `as_accounted` allows exactly what the failover said is lost.
    """

    verb: ClassVar[str] = "reconcile"
    name: str = "reconciliation"
    expect: Literal["equal", "as_accounted", "anything"] = "equal"
    quick: bool = False
    within: DurationMs = 300_000

    @model_validator(mode="after")
    def _counts_what_it_expects(self) -> Self:
        if self.quick and self.expect == "as_accounted":
            raise ValueError(
                "a quick comparison does not count lost records; accepted with quick: expect equal or anything"
            )
        return self

    @property
    def title(self) -> str:
        """The title with the step's name."""
        return f"reconcile ({self.name})"


class Wait(PlanStep):
    """Wait until a condition holds: lag in records, records acknowledged or delivered, the group
    level with the load, or the link protected.
    """

    verb: ClassVar[str] = "wait"
    lag_records_max: int | None = Field(default=None, ge=0)
    acknowledged: int | None = Field(default=None, ge=1, description="more records than when the wait began")
    delivered: int | None = Field(default=None, ge=1, description="more records than when the wait began")
    is_delivered_all: bool = False
    is_protected: bool = False
    load_ended: str = ""
    within: DurationMs = 60_000

    @model_validator(mode="after")
    def _one_condition(self) -> Wait:
        given = [self.lag_records_max is not None, self.acknowledged is not None, self.delivered is not None]
        if sum([*given, self.is_delivered_all, self.is_protected, bool(self.load_ended)]) != 1:
            accepted = "lag_records_max, acknowledged, delivered, is_delivered_all, is_protected, load_ended"
            raise ValueError(f"accepted: one of {accepted}")
        return self

    @property
    def title(self) -> str:
        """The title with the condition."""
        if self.lag_records_max is not None:
            return f"wait until at most {self.lag_records_max} records behind"
        if self.acknowledged is not None:
            return f"wait for {self.acknowledged} more acknowledged"
        if self.delivered is not None:
            return f"wait for {self.delivered} more delivered"
        if self.is_protected:
            return "wait until the link is protected"
        return "wait until all is delivered" if self.is_delivered_all else f"wait for the end of {self.load_ended}"


class Hold(PlanStep):
    """Keep the current fault for a time."""

    verb: ClassVar[str] = "hold"
    duration: DurationMs

    @property
    def title(self) -> str:
        """The title with the time."""
        return f"hold {self.duration / 1000:g} s"


class Check(PlanStep):
    """Read the logs of the active site and run the checkers over all that clients saw."""

    verb: ClassVar[str] = "check"


STEPS: dict[str, type[PlanStep]] = {
    step.verb: step
    for step in (
        CreateTopics, StartLoad, PauseLoad, ResumeLoad, StopLoad, StartGroup, StopGroup, Cut, Slow, Reset, Heal, Kill,
        Terminate, Stop, Resume, Start, FillDisk, FreeDisk, StepClock, BreakNames,
        FailOver, SwitchOver, Reinstate, Reconcile, Wait, Hold, Check,
    )
}  # fmt: skip


class Expectations(PlanPart):
    """The limits for the measurements at the end; the report shows measurements without a key, but
    judges only those with one.
    """

    recovery_point_records_max: int | None = Field(default=None, ge=0)
    recovery_point_ms_max: DurationMs | None = None
    producer_recovery_ms_max: DurationMs | None = None
    consumer_recovery_ms_max: DurationMs | None = None
    duplicates_max: int | None = Field(default=None, ge=0)
    gaps_max: int | None = Field(default=None, ge=0)
    order_violations_max: int | None = Field(default=None, ge=0)
    undelivered_max: int | None = Field(default=None, ge=0)
    redelivered_max: int | None = Field(default=None, ge=0)
    loss_is_as_accounted: bool | None = None
    sites_equal: tuple[str, ...] = Field(default=(), description="names of reconcile steps that must find equality")


class SteadyState(PlanPart):
    """What must hold before the first step; otherwise nothing is done."""

    is_protected: bool = False
    lag_records_max: int | None = Field(default=None, ge=0)
    within: DurationMs = 60_000


class StopConditions(PlanPart):
    """What ends the drill early, in good order, whenever it is so."""

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
    """Read a plan. OperationalFailure names file, key, value and what is accepted."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OperationalFailure(f"plan {path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise OperationalFailure(f"plan {path} is not YAML: {error}") from error
    return parse_plan(document, where=str(path))


def parse_plan(document: object, *, where: str) -> DrillPlan:
    """A plan from what YAML gave."""
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
