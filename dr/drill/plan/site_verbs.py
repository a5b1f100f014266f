"""The verbs of a plan that change the active site, compare the sites, wait, and check."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dr.drill.plan.parts import DurationMs, PlanStep


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
    """Make the other site active as planned work: both sites are up, and no record is lost."""

    verb: ClassVar[str] = "switch_over"
    to: str
    drain_within: DurationMs = 30_000
    unavailability_max: DurationMs = 5_000

    @property
    def title(self) -> str:
        """The title with the site."""
        return f"switch over to {self.to}"


class Reinstate(PlanStep):
    """Make a site follow again after a failover away from it: its copies are truncated to the
    common history, and their later records go to quarantine.
    """

    verb: ClassVar[str] = "reinstate"
    within: DurationMs = 60_000


class Reconcile(PlanStep):
    """Compare both sites batch by batch, or with `quick` by the digests that brokers keep;
    `as_accounted` accepts exactly the losses in the failover's account.
    """

    verb: ClassVar[str] = "reconcile"
    name: str = Field(default="reconciliation", pattern=r"^[^/\x00]+$", description="part of a folder's name")
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
    level with the load, the link protected, the end of a load, or first records in a query's files.
    """

    verb: ClassVar[str] = "wait"
    lag_records_max: int | None = Field(default=None, ge=0)
    acknowledged: int | None = Field(default=None, ge=1, description="more records than when the wait began")
    delivered: int | None = Field(default=None, ge=1, description="more records than when the wait began")
    is_delivered_all: bool = False
    is_protected: bool = False
    load_ended: str = ""
    query_stored: str = ""
    within: DurationMs = 60_000

    @model_validator(mode="after")
    def _one_condition(self) -> Wait:
        given = [self.lag_records_max is not None, self.acknowledged is not None, self.delivered is not None]
        named = [bool(self.load_ended), bool(self.query_stored)]
        if sum([*given, self.is_delivered_all, self.is_protected, *named]) != 1:
            accepted = "lag_records_max, acknowledged, delivered, is_delivered_all, is_protected, load_ended"
            raise ValueError(f"accepted: one of {accepted}, query_stored")
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
        if self.query_stored:
            return f"wait until query {self.query_stored} has stored records"
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
    """Read the logs of the active site, and run the checkers over all observations of the
    clients.
    """

    verb: ClassVar[str] = "check"


SiteStep = FailOver | SwitchOver | Reinstate | Reconcile
