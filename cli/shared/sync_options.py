"""Options about how a link's source waits for its target, of `antipode links` and `antipode up`."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from cli.shared.failures import usage_error
from cli.shared.numbers import number_option
from wire.rules.links import SyncPolicy
from wire.rules.topic_config_kinds import INT_MAX

_SYNC_TIMEOUT: Final = number_option(
    "--sync-timeout-ms", low=1, high=INT_MAX, purpose="How long degrade waits for a silent target."
)
SyncTimeoutOption = Annotated[int, _SYNC_TIMEOUT]
ChangedSyncTimeoutOption = Annotated[int | None, _SYNC_TIMEOUT]
SyncBoundOption = Annotated[
    int | None,
    number_option(
        "--sync-bound-ms", low=1, high=INT_MAX, purpose="With --sync bound: how far the target may be behind, in ms."
    ),
]


def checked_bound_ms(sync: enum.Enum | None, bound_ms: int | None) -> int:
    """Return the bound of the policy `bound`, 0 for another policy. Raises a usage error if only
    one of the two options is given.
    """
    is_bound = sync is not None and sync.value == SyncPolicy.BOUND.value
    if is_bound != (bound_ms is not None):
        raise usage_error("--sync bound and --sync-bound-ms belong together: give both")
    return bound_ms or 0
