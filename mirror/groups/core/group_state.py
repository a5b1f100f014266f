"""The values of the machine in `group_offsets.py`: the state of a group, the circumstances of a
decision, and the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.link.core.committed_offsets import GroupOffset
from wire.protocol.ids import TopicPartition

Offsets = Mapping[TopicPartition, GroupOffset]


class Copy(NamedTuple):
    """The copy of one partition, as this daemon knows it."""

    is_ours: bool
    is_mirroring: bool
    log_start_offset: int
    log_end_offset: int  # -1: unknown
    losses: int  # how often the copy ended below its earlier end

    @property
    def is_known(self) -> bool:
        """True when this daemon mirrors the partition and knows where the copy ends."""
        return self.is_ours and self.log_end_offset >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The link and the copies at the moment of a decision."""

    now_ms: float  # monotonic
    is_routed: bool
    is_draining: bool
    # The target keeps offsets until they are removed there, and knows which ones mirrors wrote.
    is_kept_at_target: bool = False
    # None: the partition is not on the board.
    copy_of: Callable[[TopicPartition], Copy | None]
    # True for topics that the link carries.
    is_carried: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    """The decision for one group."""

    group: str
    # Offsets to write, and the source's offsets that they represent.
    writes: Offsets = field(default_factory=dict)
    sources: Offsets = field(default_factory=dict)
    # The target's own offsets, written again so that they do not expire there, or so that the
    # target knows them as carried.
    refreshed: Offsets = field(default_factory=dict)
    # The target's offsets that the source has removed.
    removed: Offsets = field(default_factory=dict)
    # The source's offsets of partitions in which nothing needs to be written.
    settled: Offsets = field(default_factory=dict)
    # The target's offsets of partitions in which both ends agree again.
    in_sync: Offsets = field(default_factory=dict)
    target_ahead: Mapping[TopicPartition, str] = field(default_factory=dict)
    behind_since_ms: Mapping[TopicPartition, float] = field(default_factory=dict)
    missing_since_ms: Mapping[TopicPartition, float] = field(default_factory=dict)
    # Partitions that have left the link, or in which the offset is the target's own.
    forgotten: tuple[TopicPartition, ...] = ()
    is_written_again: bool = False
    # The decision differs as soon as copies have grown.
    is_open: bool = False
    # Every offset of the source is among those that were looked at.
    is_whole: bool = True


@dataclass(slots=True)
class GroupState:
    """The known state of one group at both ends."""

    written_again_at_ms: float
    at_source: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    # True if all its offsets were read after the mirror began to follow the source's commits.
    is_read: bool = False
    # Partitions whose offset at the source came from the target, by a link in the other direction.
    from_target: Collection[TopicPartition] = ()
    # The source's offsets when they were carried last, and the target's offsets.
    carried: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    at_target: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    # Partitions in which the target has an offset that the source lacks, and that this mirror does
    # not know as carried.
    only_at_target: set[TopicPartition] = field(default_factory=set)
    # The time since which the source lacks a mirrored offset.
    missing_since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    # The time since which the source is behind the target.
    behind_since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    # Partitions in which the group has committed at the target since both ends agreed.
    moved_at_target: set[TopicPartition] = field(default_factory=set)
    # Partitions in which the target stays ahead for an unproven cause, and that cause.
    target_ahead: dict[TopicPartition, str] = field(default_factory=dict)
    is_active: bool = False
    is_open: bool = False
    problem: str = ""
    paused_until_ms: float = 0.0
    pause_ms: int = 0

    def forget(self, key: TopicPartition) -> None:
        """Forget the partition's offsets."""
        self.carried.pop(key, None)
        self.at_target.pop(key, None)
        self.missing_since_ms.pop(key, None)
        self.behind_since_ms.pop(key, None)
        self.target_ahead.pop(key, None)
        self.moved_at_target.discard(key)
        self.only_at_target.discard(key)
