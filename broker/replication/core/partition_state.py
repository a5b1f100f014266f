"""The state of one replica, and the ends computed from it. Pure.

Invariants: P1 to P6, see `core/partition_invariants.py`. Caller: core/partition.py.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from broker.replication.core.partition_effects import (
    Effects,
    HighWatermarkMoved,
    MirrorableEndMoved,
)
from broker.replication.core.replica_progress import ReplicaProgress
from broker.replication.core.standby_hold import StandbyHold
from broker.replication.core.standby_terms import StandbyTerms, hold_by_terms
from wire.protocol.ids import NO_EPOCH, NO_NODE

STORY_LENGTH: Final = 12


class ReplicaRole(enum.Enum):
    """The role of this broker for the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class Reached(NamedTuple):
    """The ends at the last check, which must not fall."""

    leader_epoch: int
    partition_epoch: int
    leader: int
    truncations: int
    high_watermark: int
    mirrorable_end: int
    log_end_offset: int

    @classmethod
    def of(cls, partition: PartitionState) -> Reached:
        """The partition's present."""
        return cls(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader=partition.leader,
            truncations=partition.truncation_count,
            high_watermark=partition.high_watermark,
            mirrorable_end=partition.mirrorable_end,
            log_end_offset=partition.log_end_offset,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass
class PartitionState:
    """The state of one replica."""

    node_id: int
    role: ReplicaRole = ReplicaRole.NONE
    leader: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    leader_epoch_start_offset: int = 0
    led_since_epoch: int = NO_EPOCH
    """First leader epoch of the uninterrupted leadership: records appended since then are still in
    the log.
    """
    partition_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    proposed_isr: tuple[int, ...] | None = None
    joining: set[int] = field(default_factory=set)
    """On the leader, the followers that will be in sync as soon as they have the others' records;
    the high watermark waits for them.
    """
    insync_replicas_min: int = 1
    """The topic's `min.insync.replicas`."""
    high_watermark: int = 0
    log_end_offset: int = 0
    mirrorable_end: int = 0
    """On the leader, the offset below which every in-sync replica of this site has the records, so
    that no election here removes them. Mirrors and tools read up to it while consumers wait for a
    standby.
    """
    flushed_end: int | None = None
    """On the leader, while a producer's append waits for a flush (flush.messages): the offset below
    which the own log is on disk. The high watermark waits for it, so that a loss of power removes
    no record that a consumer has read; None without such a limit.
    """
    hold: StandbyHold | None = None
    has_acknowledged_alone: bool = False
    """On the leader, True if records of this leadership may have been acknowledged while no hold
    waited for a standby.
    """
    followers: dict[int, ReplicaProgress] = field(default_factory=dict)
    truncation_count: int = 0
    _awaited_flush_end: int = 0
    """The end of the last append that waits for a flush."""
    _story: tuple[tuple[object, ...], ...] = ()
    _checked: Reached | None = None

    def __post_init__(self) -> None:
        self.mirrorable_end = max(self.mirrorable_end, self.high_watermark)

    @property
    def is_leader(self) -> bool:
        """True while this broker leads."""
        return self.role is ReplicaRole.LEADER

    @property
    def is_follower(self) -> bool:
        """True while this broker follows another one."""
        return self.role is ReplicaRole.FOLLOWER

    def follow_terms(self, terms: StandbyTerms | None, *, now_ms: float) -> None:
        """Wait for the standby by these terms of the link, of which only a leader has some."""
        self.has_acknowledged_alone |= self.is_leader and terms is None
        if terms is None:
            self.hold = None
            return
        self.hold = hold_by_terms(self.hold, terms, now_ms=now_ms, has_acknowledged_alone=self.has_acknowledged_alone)
        self.has_acknowledged_alone &= self.hold is None

    @property
    def unfetched_in_sync(self) -> tuple[int, ...]:
        """On the leader, the in-sync replicas that have fetched nothing under this leadership."""
        if all(progress.log_end_offset >= 0 for progress in self.followers.values()):
            return ()
        return tuple(
            node for node, progress in self.followers.items() if progress.log_end_offset < 0 and node in self.isr
        )

    @property
    def exceeding_in_sync(self) -> tuple[int, ...]:
        """On the leader, the in-sync replicas that may have records which the own log does not
        have: an accepted fetch shows that a replica has none.
        """
        return tuple(
            node
            for node, progress in self.followers.items()
            if node in self.isr and (progress.may_exceed or progress.log_end_offset < 0)
        )

    @property
    def spare_in_sync(self) -> int:
        """In-sync replicas beyond those that acks=all needs; negative if there are too few. No more
        are required than there are.
        """
        # `max(..., 1)`: before the first image there are no replicas, and the topic's minimum must
        # not count
        return len(self.isr) - min(self.insync_replicas_min, max(len(self.replicas), 1))

    @property
    def has_enough_in_sync(self) -> bool:
        """True when acks=all may be promised."""
        return len(self.isr) >= min(self.insync_replicas_min, len(self.replicas) or 1)

    @property
    def needs_standby_checks(self) -> bool:
        """True while `check_standby` must be called regularly; later a moved mirrorable end makes
        it true again.
        """
        hold = self.hold
        return hold is not None and hold.needs_checks(
            high_watermark=self.high_watermark, mirrorable_end=self.mirrorable_end
        )

    def _advance(self, effects: Effects) -> Effects:
        """The effects, and those of ends that can move now."""
        # KIP-966: records below the high watermark were at min.insync.replicas brokers
        if not self.is_leader or not self.has_enough_in_sync:
            return effects
        # a leader with a pending flush is behind its followers: a loss of power could remove its
        # copy
        end = self.log_end_offset if self.flushed_end is None else min(self.log_end_offset, self.flushed_end)
        for replica, progress in self.followers.items():
            if progress.log_end_offset < end and self._counts(replica):
                end = progress.log_end_offset
        former = self.mirrorable_end
        if end > former:
            self.mirrorable_end = end
            effects += (MirrorableEndMoved(former, end),)
        # the ends move in this order: the high watermark may never pass the mirrorable end (P1)
        bound = None if self.hold is None else self.hold.bound
        visible = self.mirrorable_end if bound is None else min(self.mirrorable_end, bound)
        former = self.high_watermark
        if visible > former:
            self.high_watermark = visible
            effects += (HighWatermarkMoved(former, visible),)
        return effects

    def _counts(self, replica: int) -> bool:
        if replica in self.isr or replica in self.joining:
            return True
        # a proposal that the controller may have accepted already: its members count as in sync too
        return self.proposed_isr is not None and replica in self.proposed_isr

    def _note(self, *decision: object) -> None:
        """Add a decision to the story, which is made a sentence only when an invariant is
        broken.
        """
        self._story = (*self._story[1 - STORY_LENGTH :], decision)

    def _story_text(self) -> str:
        return "\n".join(" ".join(map(str, decision)) for decision in self._story)

    def low_watermark(self, log_start_offset: int, live: Collection[int]) -> int:
        """The lowest log start of the own log and the live followers'; -1 while one of them has not
        reported its own.
        """
        # a broker that is not registered cannot hold up DeleteRecords: it truncates when it returns
        starts = [progress.log_start_offset for node, progress in self.followers.items() if node in live]
        return min([log_start_offset, *starts])
