"""Chooses the offset of a consumer group that the mirror writes at the target (invariants M3 and
M4).

Never ahead of the mirrored records and never behind the target's log start; never backwards, unless
the group itself was certainly reset at the source and has not moved at the target since; never
while the group has members at the target. `GroupOffsets` asks it for each group and partition.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from mirror.link.core.committed_offsets import GroupOffset


class TargetRange(Struct, frozen=True, kw_only=True):
    """The range of the partition in the target's log."""

    log_start_offset: int
    log_end_offset: int


def clamp(committed: GroupOffset, target: TargetRange) -> GroupOffset:
    """`max(target log start, min(source committed, target log end))`; a moved offset loses its
    leader epoch.
    """
    offset = max(target.log_start_offset, min(committed.offset, target.log_end_offset))
    return committed if offset == committed.offset else GroupOffset(offset, -1, committed.metadata)


class Stay(enum.Enum):
    """The reason why nothing is written."""

    ACTIVE = "the group has members at the target"
    IN_SYNC = "the group has the same offset at both sites"
    AHEAD = "the group is ahead at the target, and was not reset at the source"
    FROM_TARGET = "the source's offset came from the target"
    UNKNOWN = "the group was reset at the source or has advanced at the target; the mirror cannot decide which"
    MOVED_ON = "the group was reset at the source, but has also moved at the target"


def offset_to_commit(
    *,
    source: GroupOffset,
    source_before: GroupOffset | None,
    target_committed: GroupOffset | None,
    target: TargetRange,
    is_active_at_target: bool,
    has_moved_at_target: bool = False,
    is_from_target: bool = False,
    is_final: bool = False,
) -> GroupOffset | Stay:
    """The offset to write at the target, or the reason why it stays unchanged.

    `source_before` is the source's offset when both last agreed, None if unknown: without it, a
    lower offset may come from a late answer and is not carried. `has_moved_at_target`: since then,
    by itself. `is_from_target`: a link in the other direction brought the source's offset there.
    `is_final`: the source is fenced and its groups are the target's next, or its offset has not
    moved for long, so it is valid even if it is lower.
    """
    if is_active_at_target:
        return Stay.ACTIVE
    wanted = clamp(source, target)
    if target_committed is not None and wanted.offset == target_committed.offset:
        return wanted if wanted.metadata != target_committed.metadata else Stay.IN_SYNC
    if is_from_target:
        return Stay.FROM_TARGET
    if target_committed is None or wanted.offset > target_committed.offset or is_final:
        return wanted
    if source_before is None:
        return Stay.UNKNOWN
    if source.offset >= source_before.offset:
        return Stay.AHEAD
    return Stay.MOVED_ON if has_moved_at_target else wanted
