"""Options about how a link's source waits for its target, of `antipode links` and `antipode up`."""

from __future__ import annotations

import enum
from typing import Annotated

from cli.shared.failures import usage_error
from cli.shared.numbers import number_option
from wire.rules.links import SyncPolicy
from wire.rules.topic_config_kinds import INT_MAX

SyncTimeoutOption = Annotated[
    int | None,
    number_option(
        "--sync-timeout-ms", low=1, high=INT_MAX, purpose="With --sync degrade: how long it waits for a silent target."
    ),
]
SyncBoundOption = Annotated[
    int | None,
    number_option(
        "--sync-bound-ms", low=1, high=INT_MAX, purpose="With --sync bound: how far the target may be behind, in ms."
    ),
]


def checked_timeout_ms(sync: enum.Enum | None, timeout_ms: int | None) -> int:
    """Return the timeout of the policy `degrade`, 0 if none is given. Raises a usage error if it is
    given with another policy, which would ignore it.
    """
    if timeout_ms is not None and (sync is None or sync.value != SyncPolicy.DEGRADE.value):
        raise usage_error(f"--sync-timeout-ms {timeout_ms} is accepted with --sync degrade only: give both")
    return timeout_ms or 0


def checked_bound_ms(sync: enum.Enum | None, bound_ms: int | None) -> int:
    """Return the bound of the policy `bound`, 0 for another policy. Raises a usage error if only
    one of the two options is given.
    """
    is_bound = sync is not None and sync.value == SyncPolicy.BOUND.value
    if is_bound != (bound_ms is not None):
        raise usage_error("--sync bound and --sync-bound-ms belong together: give both")
    return bound_ms or 0
