"""The report of a failover run: its steps and its result."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from dr.sites.core.evidence import ReplicaTruncation
from dr.sites.core.loss import LossAccount


class FailoverTimeouts(Struct, frozen=True, kw_only=True):
    """The timeouts until a site enforces a record, and until the target has leaders that take
    writes.
    """

    enforce_ms: int = 10_000
    promote_ms: int = 30_000


class StepReport(Struct, frozen=True, kw_only=True):
    """One step as it went."""

    step: str
    reason: str
    started_at_ms: int
    duration_ms: int
    problem: str = ""


class FailoverReport(Struct, frozen=True, kw_only=True):
    """The result of a run. `outcome` is done, refused or planned (a dry run)."""

    link: str
    from_site: str
    to_site: str
    outcome: str
    reason: str
    epoch: int
    is_fence_proven: bool = False
    duration_ms: int = 0
    steps: tuple[StepReport, ...] = ()
    planned_steps: tuple[str, ...] = ()
    account: LossAccount | None = None
    cuts: tuple[ReplicaTruncation, ...] = ()
    """Records that replicas inside the sites have truncated; the account does not include them."""
    sync: str = ""
    """Description of what acks=all waits for at the target; empty on a link that never waits."""
    unprotected: tuple[str, ...] = ()
    is_source_silent: bool = False
    """True if the old site did not answer when the run ended."""
    may_be_raised: bool = False
    """True if the target is active in the epoch, or may be, although the run may have been refused
    since.
    """

    @property
    def is_done(self) -> bool:
        """True when the target is active now."""
        return self.outcome == "done"

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the sentences for people."""
        document: dict[str, Any] = to_builtins(self)
        if self.account is not None:
            document["account"] = self.account.document()
        for fields, truncation in zip(document["cuts"], self.cuts, strict=True):
            fields["sentence"] = truncation.sentence
        return document
