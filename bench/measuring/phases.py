"""The phases of a move of a link, from its fence to its end, in ms: the steps of the run, and the
looks at the sites between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dr.failover.core.steps import Step

TITLES: Final[Mapping[str, str]] = {
    "phase_fence_ms": "phase: fence",
    "phase_drain_ms": "phase: drain",
    "phase_raise_ms": "phase: raise of the epoch",
    "phase_account_ms": "phase: account",
    "phase_promote_ms": "phase: promotion of the leaders",
    "phase_looks_ms": "phase: looks at the sites between",
}
"""The titles of the figures, in the order of the report."""
_STEPS: Final = (Step.FENCE, Step.DRAIN, Step.RAISE, Step.ACCOUNT, Step.PROMOTE)


def phases(steps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the ms of each phase, by figure. `steps` are those of a run's record, in their order.
    Steps before the fence stopped no writer, so they are not in the list.
    """
    stopping = [step for step in steps if step["step"] in _STEPS]
    if not stopping:
        return dict.fromkeys(TITLES, 0)
    found = {f"phase_{name}_ms": 0 for name in _STEPS}
    for step in stopping:
        found[f"phase_{step['step']}_ms"] += step["duration_ms"]
    ended_ms = max(step["started_at_ms"] + step["duration_ms"] for step in stopping)
    # steps are rounded to whole ms, and the wall clock may be set during a move
    looks_ms = max(0, ended_ms - stopping[0]["started_at_ms"] - sum(found.values()))
    return {**found, "phase_looks_ms": looks_ms}
