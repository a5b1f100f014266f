"""The verbs of a plan that inject a fault, or undo it: network, processes, disks, clocks, name
resolution.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dr.drill.plan.parts import DurationMs, PlanStep


class Cut(PlanStep):
    """Disconnect the link: connections close and new ones are refused; with `is_silent` bytes are
    dropped instead.
    """

    verb: ClassVar[str] = "cut"
    is_silent: bool = False
    direction: Literal["both", "towards", "from"] = Field(
        default="both", description="only one direction: towards the site behind the proxy, or away from it"
    )
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = Field(default="", description="only proxies in front of this site")

    @model_validator(mode="after")
    def _one_way_is_silent(self) -> Self:
        if self.direction != "both" and not self.is_silent:
            raise ValueError("a connection ends in both directions; accepted for one way: is_silent: true")
        return self


class Slow(PlanStep):
    """Add latency to the link, or limit its bandwidth."""

    verb: ClassVar[str] = "slow"
    latency: DurationMs = 0
    jitter: DurationMs = 0
    rate_kb_per_s: int = Field(default=0, ge=0, description="0: no limit")
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = ""


class Reset(PlanStep):
    """Reset connections of the link, at once or after this many bytes (in the middle of a
    batch).
    """

    verb: ClassVar[str] = "reset"
    after_bytes: int = Field(default=0, ge=0)
    kind: Literal["", "link", "grpc", "arbiter"] = ""
    site: str = ""


class Heal(PlanStep):
    """Remove every network fault from the link."""

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
    """Kill processes with SIGKILL."""

    verb: ClassVar[str] = "kill"
    may_stay_down: bool = Field(default=False, description="the drill's end does not start it again")


class Terminate(_AimedStep):
    """Stop processes with SIGTERM, cleanly; fails if one has to be killed."""

    verb: ClassVar[str] = "terminate"
    within: DurationMs = 20_000
    may_stay_down: bool = False


class Stop(_AimedStep):
    """Stop processes with SIGSTOP: they do nothing, and their connections stay open."""

    verb: ClassVar[str] = "stop"


class Resume(_AimedStep):
    """SIGCONT."""

    verb: ClassVar[str] = "resume"


class Start(_AimedStep):
    """Start ended processes again, and wait until they serve."""

    verb: ClassVar[str] = "start"
    within: DurationMs = 60_000


class FillDisk(_AimedStep):
    """Keep the processes from writing to files, as on a full disk."""

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
    """Set the clock of a host forward or back; the end of the drill undoes this."""

    verb: ClassVar[str] = "step_clock"
    host: str
    by_seconds: int = Field(ge=-86_400, le=86_400)

    @property
    def title(self) -> str:
        """The title with the host."""
        return f"step the clock of {self.host} by {self.by_seconds} s"


class BreakNames(PlanStep):
    """Make names resolve to wrong addresses on a host, until `heal`."""

    verb: ClassVar[str] = "break_names"
    host: str
    names: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")], ...] = Field(min_length=1)

    @property
    def title(self) -> str:
        """The title with the host."""
        return f"break names at {self.host}"


LineStep = Cut | Slow | Reset | Heal
ProcessStep = Kill | Terminate | Stop | Resume | Start
DiskStep = FillDisk | FreeDisk
HostStep = StepClock | BreakNames
FaultStep = LineStep | ProcessStep | DiskStep | HostStep
