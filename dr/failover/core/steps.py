"""The types of a failover's state machine: steps, the operator's policy, and decisions. Pure."""

from __future__ import annotations

import enum

from msgspec import Struct

from runtime.times import iso_time
from wire.control.cluster_pb2 import LinkRecord

CHANGING_STEPS = ("prepare", "fence", "drain", "raise", "account", "promote", "notify")
"""The steps of an undisturbed run with a source that answers."""
ABORTED = "aborted by the operator"
"""The reason of a run that ended a fence at the operator's request."""
NAMED_IN_A_REASON_MAX = 3
"""Maximum number of partitions, offsets or topics that one reason names."""


class Step(enum.StrEnum):
    """The next step that the shell carries out."""

    PREPARE = "prepare"
    FENCE = "fence"
    DRAIN = "drain"
    RAISE = "raise"
    TRUNCATE = "truncate"
    HAND_BACK = "hand_back"
    ACCOUNT = "account"
    PROMOTE = "promote"
    NOTIFY = "notify"
    GIVE_BACK = "give_back"
    REFUSE = "refuse"
    DONE = "done"


class FailoverPolicy(Struct, frozen=True, kw_only=True):
    """The limits that the operator sets for a failover. `lag_records_max` None: any lag of a source
    that does not answer is accepted.

    `drain_timeout_ms` bounds each wait that stops no writer: the preparation, and the drain from a
    source that does not answer. `unavailability_max_ms` bounds how long one run stops writers
    before it raises the epoch or gives the writes back. `is_switchover`: both sites must answer.
    `is_old_site_down`: the operator declares that a source which does not answer is down.
    `needs_lost_source`: a source that answers again is not failed over from. `kept_before_ms`:
    records with this time (Unix ms) or a later one are not kept; 0: all are. `is_cut_consistent`:
    nothing from the first commit marker of a torn transaction on is kept. `is_abort`: the run
    removes a fence that an earlier run has left, and does nothing else.
    """

    lag_records_max: int | None = None
    accepts_data_loss: bool = False
    drain_timeout_ms: int = 30_000
    unavailability_max_ms: int = 5_000
    settle_ms: int = 500
    is_switchover: bool = False
    is_old_site_down: bool = True
    needs_lost_source: bool = False
    kept_before_ms: int = 0
    is_cut_consistent: bool = False
    is_abort: bool = False


class Decision(Struct, frozen=True, kw_only=True):
    """The next step, its reason, and the record that the step stores, if it stores one."""

    step: Step
    reason: str
    record: LinkRecord | None = None


class StepEnded(Struct, frozen=True, kw_only=True):
    """The result of a step that was carried out for `reason`. `problem` describes its failure;
    `stored` is the record found after storing.
    """

    step: Step
    reason: str = ""
    problem: str = ""
    stored: LinkRecord | None = None


def refuse(reason: str) -> Decision:
    """A decision that ends the run for this reason."""
    return Decision(step=Step.REFUSE, reason=reason)


def truncation_reason(governing: LinkRecord) -> str:
    """Describe which records a failover under this record of the link does not keep."""
    reasons = []
    if governing.kept_before_ms:
        reasons.append(f"records of {iso_time(governing.kept_before_ms)} or later are not kept")
    if governing.is_cut_consistent:
        reasons.append("nothing is kept from the first commit of a torn transaction on")
    return "; ".join(reasons)
