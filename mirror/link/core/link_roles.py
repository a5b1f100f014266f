"""The link's demands on its mirror: its role at this moment, and its policy for gaps."""

from __future__ import annotations

import enum


class LinkRole(enum.Enum):
    """The role that the link gives to this mirror."""

    MIRRORING = "mirroring"
    DRAINING = "draining"  # the source is fenced; its last records are copied
    TURNED = "turned"  # this site has become the active one
    GONE = "gone"  # the link was deleted


class GapPolicy(enum.Enum):
    """The reaction to records that the source expired before the target had them."""

    HALT = "halt"
    SKIP = "skip-and-record"
