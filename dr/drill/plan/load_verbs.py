"""The verbs of a plan that create topics, and start and stop the clients of a drill: producers,
groups, streaming queries.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dr.drill.plan.parts import DurationMs, PlanPart, PlanStep


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
    """Start a producer of generated records, or of the departures in a data set in the order of
    time.
    """

    verb: ClassVar[str] = "start_load"
    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    kind: Literal["records", "dataset"] = "records"
    topic: str = "drill"
    site: str = ""
    records_per_second: float = Field(default=0, ge=0, description="0: without a limit")
    count: int = Field(default=0, ge=0, description="0: until stopped, or the end of the data set")
    size_bytes: int = Field(default=200, ge=1, le=1_000_000)
    keys: int = Field(default=1000, ge=1)
    settings: dict[str, str] = Field(default_factory=dict, description="librdkafka settings")

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"start load {self.name}"


class StopLoad(PlanStep):
    """Stop a producer after a flush, or wait for the end of its data."""

    verb: ClassVar[str] = "stop_load"
    name: str
    within: DurationMs = 60_000

    @property
    def title(self) -> str:
        """The title with the load's name."""
        return f"stop load {self.name}"


class PauseLoad(PlanStep):
    """Freeze a producer with SIGSTOP. Records that it has sent are acknowledged after it is
    resumed.
    """

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


class StartQuery(PlanStep):
    """Start a streaming query that keeps topics as files, with a checkpoint. A query that was
    started before stops, and continues from its checkpoint at this site.
    """

    verb: ClassVar[str] = "start_query"
    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    topics: tuple[str, ...] = Field(min_length=1)
    site: str = ""

    @property
    def title(self) -> str:
        """The title with the query's name and site."""
        return f"start query {self.name}{f' at {self.site}' if self.site else ''}"


class FinishQuery(PlanStep):
    """Let a query read to the ends of its topics, and compare its files with them. The step fails
    if a record is missing in the files or repeated. It also fails if a record that only the files
    have lies below the offset that the failover's account keeps, or if there are more such records
    than the account has, where the account of the partition is exact. That of a site that was
    killed has no exact number.
    """

    verb: ClassVar[str] = "finish_query"
    name: str
    within: DurationMs = 120_000

    @property
    def title(self) -> str:
        """The title with the query's name."""
        return f"finish query {self.name}"


LoadStep = CreateTopics | StartLoad | PauseLoad | ResumeLoad | StopLoad | StartGroup | StopGroup
QueryStep = StartQuery | FinishQuery
