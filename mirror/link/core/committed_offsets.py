"""A committed offset of a consumer group, as the mirror carries it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class GroupOffset(Struct, frozen=True):
    """A committed offset as the coordinator keeps it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


REMOVED = GroupOffset(-1)
"""Represents an offset that the source has removed."""


class LastInSync(NamedTuple):
    """The source's offset when a group was last seen to agree at both ends, and whether the target
    still has the offset of that moment.
    """

    source_offset: int
    is_unmoved: bool
