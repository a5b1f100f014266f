"""Whether what is not mirrored yet may expire at the source before it is: a warning while there is
time. Pure.

Goes by the topic's own `retention.ms`; a source's default for topics that do not set it is not told
to mirrors. Size-based retention (`retention.bytes`) has no such measure, since how fast a log grows
is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mirror.flow.core.lag import UNKNOWN

WARNED_FROM: Final = 0.5
"""A partition is behind by this part of its retention: half of the time to act is left."""
FORGOTTEN_BELOW: Final = 0.4
"""The warning is over: lower, so that it does not come and go."""


def retention_ms(configs: Mapping[str, str]) -> int:
    """How long the source keeps records of a topic with these configs; -1 when nothing says so, or
    for ever.
    """
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return UNKNOWN
    try:
        return max(UNKNOWN, int(configs.get("retention.ms", UNKNOWN)))
    except ValueError:
        return UNKNOWN


def part_used(lag_ms: int, retained_ms: int) -> float:
    """Which part of its retention a partition is behind; 0 where either is not known."""
    return max(0, lag_ms) / retained_ms if retained_ms > 0 else 0.0


def is_at_risk(part: float, *, was_at_risk: bool) -> bool:
    """Whether a person is to be warned."""
    return part >= (FORGOTTEN_BELOW if was_at_risk else WARNED_FROM)
