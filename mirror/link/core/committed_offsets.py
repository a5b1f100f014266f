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


def removal_of(at_target: GroupOffset) -> GroupOffset:
    """Removes this offset at the target, unless the group has another one there by then."""
    return GroupOffset(REMOVED.offset, REMOVED.leader_epoch, str(at_target.offset))


class LastInSync(NamedTuple):
    """The source's offset when a group was last seen to agree at both ends, and whether the target
    still has the offset of that moment.
    """

    source_offset: int
    is_unmoved: bool
