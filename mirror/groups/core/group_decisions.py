"""Decides which offsets to write at the target for one group, from the known offsets of both ends.
Pure: the machine of `group_offsets.py` takes the decision over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mirror.groups.core.group_state import Circumstances, Copy, GroupDecision, GroupState
from mirror.groups.core.offset_choice import Stay, TargetRange, offset_to_commit
from mirror.link.core.committed_offsets import GroupOffset
from wire.protocol.ids import TopicPartition

FORGOTTEN_AFTER_MS: Final = 60_000
"""Time (ms) for which the source must lack an offset before it counts as removed: a topic's
deletion takes its offsets along, and the mirror must notice that first.
"""

BEHIND_BELIEVED_AFTER_MS: Final = 10_000
"""Time (ms) for which a group must be behind at the source of a routed link before that counts as a
reset. On other links the group may be ahead because it has members at the target now and then.
"""

REPORTED_AHEAD: Final = (Stay.UNKNOWN, Stay.MOVED_ON)
"""The states in which the target stays ahead of a source that may want the group to go back."""


@dataclass(slots=True)
class _Found:
    """The results of a decision, partition by partition."""

    writes: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    refreshed: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    settled: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    in_sync: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    target_ahead: dict[TopicPartition, str] = field(default_factory=dict)
    behind_since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    is_open: bool = False
    is_whole: bool = True


def decide(name: str, group: GroupState, link: Circumstances) -> GroupDecision:
    """Decide for a group that is known at the target."""
    is_written_again = link.now_ms >= group.written_again_at_ms
    found = _Found()
    for key, offset in group.at_source.items():
        copy = link.copy_of(key)
        if copy is None or not copy.is_known:
            if (copy is None or copy.is_ours) and link.is_carried(key.topic):
                # The partition will be mirrored soon; until then the group is incomplete.
                found.is_whole, found.is_open = False, True
            continue
        # The copy will grow, and then the group is examined again.
        if offset.offset > copy.log_end_offset:
            found.is_open = True
        _choose(group, key, offset=offset, target=_range(copy), link=link, found=found)
        is_refreshed = is_written_again and not group.is_active and key not in found.writes
        at_target = group.at_target.get(key)
        # A target that keeps offsets would take a group's own one, which is ahead, as carried.
        if is_refreshed and at_target and not (link.is_kept_at_target and at_target.offset > offset.offset):
            found.refreshed[key] = at_target
    missing, removed, forgotten = _missing(group, link)
    return GroupDecision(
        group=name,
        writes=found.writes,
        sources={key: group.at_source[key] for key in found.writes},
        refreshed=found.refreshed,
        # Members at the target commit their own offsets (c).
        removed={} if group.is_active else removed,
        settled=found.settled,
        in_sync=found.in_sync,
        target_ahead=found.target_ahead,
        behind_since_ms=found.behind_since_ms,
        missing_since_ms=missing,
        forgotten=forgotten,
        # While no copy is known, there is nothing yet to write again.
        is_written_again=is_written_again and bool(found.is_whole or found.refreshed or found.writes),
        is_open=found.is_open,
        is_whole=found.is_whole,
    )


def _choose(
    group: GroupState,
    key: TopicPartition,
    offset: GroupOffset,
    target: TargetRange,
    link: Circumstances,
    found: _Found,
) -> None:
    at_target = group.at_target.get(key)
    is_behind_for_long = False
    # metadata of the source may be older than the group's own commit at the target (routed links)
    if at_target is not None and offset.offset < at_target.offset:
        since_ms = found.behind_since_ms[key] = group.behind_since_ms.get(key, link.now_ms)
        is_behind_for_long = link.now_ms - since_ms >= BEHIND_BELIEVED_AFTER_MS
    outcome = offset_to_commit(
        source=offset,
        source_before=group.carried.get(key),
        target_committed=at_target,
        target=target,
        is_active_at_target=group.is_active,
        has_moved_at_target=not link.is_routed and key in group.moved_at_target,
        is_from_target=key in group.from_target,
        is_final=link.is_routed and (link.is_draining or is_behind_for_long),
    )
    if isinstance(outcome, GroupOffset):
        found.writes[key] = outcome
        return
    if outcome is Stay.IN_SYNC and group.carried.get(key) != offset:
        found.in_sync[key] = group.at_target[key]
    if outcome in (Stay.IN_SYNC, Stay.AHEAD) or (outcome is Stay.UNKNOWN and link.is_routed):
        found.settled[key] = offset
    elif outcome in REPORTED_AHEAD:
        found.target_ahead[key] = f"{offset.offset} at the source; {outcome.value}"


def _missing(
    group: GroupState, link: Circumstances
) -> tuple[dict[TopicPartition, float], dict[TopicPartition, GroupOffset], tuple[TopicPartition, ...]]:
    """Return the time since which mirrored offsets are missing at the source, the offsets to
    remove, and the offsets to drop because their partition has left the link, or because the target
    has another offset than the carried one.
    """
    since: dict[TopicPartition, float] = {}
    removed: dict[TopicPartition, GroupOffset] = {}
    forgotten: list[TopicPartition] = []
    for key in group.carried.keys() - group.at_source.keys():
        copy, at_target = link.copy_of(key), group.at_target.get(key)
        # the partition has left the link, or the group has moved on at the target: its offsets stay
        # there
        is_own = (
            link.is_kept_at_target
            and not link.is_routed
            and at_target is not None
            and at_target.offset > group.carried[key].offset
        )
        if copy is None or is_own:
            forgotten.append(key)
            continue
        since[key] = group.missing_since_ms.get(key, link.now_ms)
        is_gone = group.is_read and link.now_ms - since[key] >= FORGOTTEN_AFTER_MS
        # a topic that is created again lacks its offsets for a while, so they are not removed at
        # once
        is_known = at_target is not None or not link.is_kept_at_target
        if is_gone and copy.is_ours and copy.is_mirroring and is_known:
            removed[key] = at_target or group.carried[key]
    return since, removed, tuple(forgotten)


def _range(copy: Copy) -> TargetRange:
    return TargetRange(log_start_offset=copy.log_start_offset, log_end_offset=copy.log_end_offset)
