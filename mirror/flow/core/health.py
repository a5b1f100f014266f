"""The health of a whole mirror, computed from its partitions: one definition for gRPC health,
`/health`, the metrics and `antipode status`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mirror.flow.core.flow_state import FlowState
from mirror.link.core.link_roles import LinkRole

IDLE: Final = "IDLE"
"""This daemon has no partition to mirror, and nothing is wrong: the source has no topic yet, or
other daemons have all of them.
"""
CARRIES_NOTHING: Final = "CARRIES_NOTHING"
"""The source has topics, and the link's filters leave out all of them."""

WAITING: Final = "WAITING"
"""Another daemon carries the link, which is not shared; this daemon takes the link over when the
other one is gone.
"""

HEALTHY_STATES: Final = ("PREPARING", "MIRRORING", "PROMOTING", "PROMOTED", IDLE, WAITING)
"""States of a whole mirror that need no person; PREPARING not for long."""

_GRAVITY: Final = (
    FlowState.FAULTED,
    FlowState.RESET,
    FlowState.REFUSED,
    FlowState.GAP,
    FlowState.SOURCE_UNAVAILABLE,
    FlowState.REVERSING,
    FlowState.PREPARING,
    FlowState.PAUSED,
    FlowState.PROMOTING,
    FlowState.MIRRORING,
    FlowState.PROMOTED,
)
_AT_WORK: Final = frozenset({FlowState.MIRRORING, FlowState.PROMOTING, FlowState.PROMOTED})
_WITHOUT_PARTITIONS: Final = {LinkRole.TURNED: FlowState.PROMOTED, LinkRole.GONE: FlowState.PAUSED}

StateAndReason = tuple[FlowState, str]


class Health(NamedTuple):
    """`state` is a FlowState's name, IDLE, CARRIES_NOTHING or WAITING. `is_serving`: at least one
    partition is mirrored as the link demands.
    """

    state: str
    reason: str
    is_serving: bool


def not_opened(reason: str) -> Health:
    """The health of a daemon that has not reached both ends of its link."""
    return Health(FlowState.PREPARING.value, reason, is_serving=False)


def assess(
    flows: Iterable[StateAndReason],
    *,
    outage: StateAndReason | None,
    role: LinkRole,
    nothing_carried: str,
    is_shared: bool,
    waiting_for: str = "",
) -> Health:
    """The most serious state with its first reason. `outage`: a site does not answer.
    `nothing_carried`: the filters leave out all topics. `waiting_for`: another daemon carries the
    link.
    """
    if waiting_for:
        return Health(WAITING, waiting_for, is_serving=False)
    found = list(flows)
    is_serving = any(state in _AT_WORK for state, _ in found)
    if outage is not None:
        found.append(outage)
    if not found and role in _WITHOUT_PARTITIONS:
        state = _WITHOUT_PARTITIONS[role]
        return Health(state.value, "", is_serving=state in _AT_WORK)
    if nothing_carried and all(state in _AT_WORK for state, _ in found):
        return Health(CARRIES_NOTHING, nothing_carried, is_serving=is_serving)
    if not found:
        others = "; daemons that share the link may have all of them" if is_shared else ""
        return Health(IDLE, f"there is no partition to mirror{others}", is_serving=False)
    state, reason = min(found, key=lambda one: _GRAVITY.index(one[0]))
    return Health(state.value, reason, is_serving=is_serving)
