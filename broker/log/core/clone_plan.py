"""Chooses the segment files of a log that a clone may share with it. Pure: offsets in, a plan out.

The broker appends to the newest segment of a log in place, and a truncation reaches only segments
that hold offsets at or above the high watermark. So a clone shares, by hard links, the closed
segments whose records are all below its end. It has a copy of the segment in which it ends, and no
later segments.

Caller: broker/log/directories/log_cloning.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct


class ClonePlan(Struct, frozen=True, kw_only=True):
    """Base offsets of segments, in order. `copied` is the segment in which the clone ends."""

    linked: tuple[int, ...]
    copied: int


def plan_clone(base_offsets: Sequence[int], end_offset: int | None) -> ClonePlan:
    """The plan for a log with segments of these base offsets, and a clone that ends at
    `end_offset` (None: where the log ends). ValueError for a log without segments, or one that
    begins above the end.
    """
    bases = sorted(base_offsets)
    if not bases:
        raise ValueError("the log has no segment")
    if end_offset is not None and bases[0] > end_offset:
        raise ValueError(f"the log begins at {bases[0]}, above the end {end_offset} of the clone")
    closed = [base for base, following in pairwise(bases) if end_offset is None or following <= end_offset]
    return ClonePlan(linked=tuple(closed), copied=bases[len(closed)])
