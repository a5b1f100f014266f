"""The options of `antipode links` about policies: sync, reinstatement, lease and automatic
failover.
"""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from cli.shared.numbers import number_option
from wire.rules.links import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    FailoverMode,
    ReinstatePolicy,
    SyncPolicy,
)
from wire.rules.topic_config_kinds import INT_MAX, LONG_MAX


class SyncChoice(enum.Enum):
    """The way in which the source waits for the target."""

    BLOCK = SyncPolicy.BLOCK.value
    DEGRADE = SyncPolicy.DEGRADE.value
    BOUND = SyncPolicy.BOUND.value


class FailoverChoice(enum.Enum):
    """The standby's reaction to the loss of the active site."""

    MANUAL = "manual"
    OBSERVE = FailoverMode.OBSERVE.value
    AUTOMATIC = FailoverMode.AUTOMATIC.value


class ReinstateChoice(enum.Enum):
    """The actor that moves a returning site's own records into quarantine: a person or the link's
    mirror.
    """

    MANUAL = "manual"
    AUTOMATIC = ReinstatePolicy.AUTOMATIC.value


SyncOption = Annotated[
    SyncChoice | None,
    typer.Option(
        help="block: acks=all is answered, and consumers see a record, only when the target has it. degrade: the same, until the "
        "target is silent for --sync-timeout-ms. bound: acks=all waits only while the target is more than --sync-bound-ms behind.",
    ),
]


ReinstateOption = Annotated[
    ReinstateChoice,
    typer.Option(
        "--reinstate",
        help="automatic: when a site returns after a failover, the records that only it has go into quarantine, "
        "and the site is a standby again. manual: antipode links reinstate does that.",
    ),
]


LeaseOption = Annotated[
    int | None,
    number_option(
        "--lease-ms",
        low=LEASE_MS_MIN,
        high=LEASE_MS_MAX,
        zero="no lease",
        purpose="Have the arbiter decide which site writes: a site that reaches neither the arbiter nor its standby stops "
        f"writers after this time. Usual: {LEASE_MS_DEFAULT}.",
    ),
]


FailoverOption = Annotated[
    FailoverChoice | None,
    typer.Option(
        "--failover",
        help="The standby's reaction to the loss of the active site. manual: none. observe: reports that it would "
        "fail over now (the default with a lease). automatic: fails over. The last two need a lease.",
    ),
]


LagRecordsOption = Annotated[
    int | None,
    number_option(
        "--failover-max-lag-records",
        low=0,
        high=LONG_MAX,
        zero="no bound",
        purpose="An automatic failover waits for a person when the standby is known to lack more records.",
    ),
]


LagMsOption = Annotated[
    int | None,
    number_option(
        "--failover-max-lag-ms",
        low=0,
        high=INT_MAX,
        zero="no bound",
        purpose="The same, when a copy was behind for longer than this before the site was lost.",
    ),
]


def failover_mode_of(choice: FailoverChoice) -> FailoverMode:
    """The mode of a link's record."""
    return FailoverMode.MANUAL if choice is FailoverChoice.MANUAL else FailoverMode(choice.value)


def reinstate_policy_of(choice: ReinstateChoice) -> ReinstatePolicy:
    """The policy of a link's record."""
    return ReinstatePolicy.AUTOMATIC if choice is ReinstateChoice.AUTOMATIC else ReinstatePolicy.MANUAL
