"""What a link asks of its mirror: its role at this moment, and its policy for gaps."""

from __future__ import annotations

import enum


class LinkRole(enum.Enum):
    """What the link asks of this mirror."""

    MIRRORING = "mirroring"
    DRAINING = "draining"  # the source is fenced; what it still has is brought over
    TURNED = "turned"  # this site became the active one
    GONE = "gone"  # the link is not known any more


class GapPolicy(enum.Enum):
    """What to do when the source has expired records that the target lacks."""

    HALT = "halt"
    SKIP = "skip-and-record"
