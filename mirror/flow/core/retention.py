"""Warns while there is time if unmirrored records may expire at the source before they are
mirrored. Pure.

Uses the topic's own `retention.ms`; a mirror cannot read the source's default for topics that do
not set it. Size-based retention (`retention.bytes`) has no such measure, since how fast a log grows
is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire.protocol.ids import UNKNOWN

WARNED_FROM: Final = 0.5
"""A partition is behind by this fraction of its retention: half of the time to act is left."""
FORGOTTEN_BELOW: Final = 0.4
"""Below this fraction the risk of a partition has ended."""


def retention_ms(configs: Mapping[str, str]) -> int:
    """The time (ms) for which the source keeps records of a topic with these configs; -1 for ever,
    or when no config sets it.
    """
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return UNKNOWN
    try:
        return max(UNKNOWN, int(configs.get("retention.ms", UNKNOWN)))
    except ValueError:
        return UNKNOWN


def part_used(lag_ms: int, retained_ms: int) -> float:
    """The fraction of its retention that a partition lags behind; 0 where either is unknown."""
    return max(0, lag_ms) / retained_ms if retained_ms > 0 else 0.0


def is_at_risk(part: float, *, was_at_risk: bool) -> bool:
    """True if the mirror should warn an operator."""
    # Two limits, because a partition near a single limit would alternate and warn repeatedly.
    return part >= (FORGOTTEN_BELOW if was_at_risk else WARNED_FROM)
