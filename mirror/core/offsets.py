"""Which offset of a consumer group the mirror writes at the target (invariants M3 and M4).

Never ahead of what is mirrored and never behind the target's log start; never backwards, unless the group itself was seen
to go back at the source (a reset); never while the group has members at the target. Called by the group sync for each
group and partition, round by round.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset as the coordinator keeps it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


REMOVED = GroupOffset(-1)
"""In place of an offset: the source has none any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRange:
    """What the target's log of the partition holds."""

    log_start_offset: int
    log_end_offset: int


def clamp(committed: GroupOffset, target: TargetRange) -> GroupOffset:
    """`max(target log start, min(source committed, target log end))`; a moved offset loses its leader epoch."""
    offset = max(target.log_start_offset, min(committed.offset, target.log_end_offset))
    return committed if offset == committed.offset else GroupOffset(offset, -1, committed.metadata)


def offset_to_commit(
    *,
    source: GroupOffset,
    source_before: GroupOffset | None,
    target_committed: GroupOffset | None,
    target: TargetRange,
    is_active_at_target: bool,
    is_final: bool = False,
) -> GroupOffset | None:
    """The offset to write at the target, None for nothing.

    `source_before` is what the source had when the mirror last looked, None when it has not looked before: then a lower
    offset cannot be told from a late answer and is not carried. `is_final`: the source is fenced and its groups are the target's next,
    or it has said the same for long, so that what it says is the last word, also a lower one.
    """
    if is_active_at_target:
        return None
    wanted = clamp(source, target)
    if target_committed is None:
        return wanted
    if wanted.offset > target_committed.offset:
        return wanted
    if wanted.offset == target_committed.offset:
        return wanted if wanted.metadata != target_committed.metadata else None
    was_reset = source_before is not None and source.offset < source_before.offset
    return wanted if was_reset or is_final else None
