"""One replica of a partition on this broker: who leads, who is in sync, how far records are safe.

Pure and without `await`: the shell (`replicas.py`) tells it what happened (an append, a follower's fetch, a new leadership) and
acts on what it answers. The high watermark is the smallest log end offset of the in-sync replicas and never goes back under one
leader; with one replica it is the own log end.

Invariants: P1 high watermark <= own log end offset. P2 it never decreases under a leadership. P3 a leadership with a leader epoch
below the known one is refused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from broker.core.cluster_image import NO_NODE, UNKNOWN_EPOCH, PartitionImage


class ReplicaRole(enum.Enum):
    """What this broker is for the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class LeadershipChange(enum.Enum):
    """What a new partition image meant."""

    STALE = "stale"
    UNCHANGED = "unchanged"
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"


@dataclass(slots=True)
class ReplicaProgress:
    """How far another replica has fetched, as the leader saw it."""

    log_end_offset: int = -1
    caught_up_at_ms: float = 0.0


@dataclass(slots=True)
class Partition:
    """The state of one replica; see the module for its invariants."""

    node_id: int
    role: ReplicaRole = ReplicaRole.NONE
    leader: int = NO_NODE
    leader_epoch: int = UNKNOWN_EPOCH
    leader_epoch_start_offset: int = 0
    partition_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    high_watermark: int = 0
    log_end_offset: int = 0
    followers: dict[int, ReplicaProgress] = field(default_factory=dict)

    @property
    def is_leader(self) -> bool:
        """True while this broker leads."""
        return self.role is ReplicaRole.LEADER

    def change(self, image: PartitionImage, *, now_ms: float) -> LeadershipChange:
        """Take the controller's decision; STALE (and nothing changed) for an older leader epoch."""
        if image.leader_epoch < self.leader_epoch:
            return LeadershipChange.STALE
        is_same = image.leader_epoch == self.leader_epoch and image.leader == self.leader
        self.partition_epoch = image.partition_epoch
        self.replicas, self.isr = image.replicas, image.isr
        self.leader = image.leader
        if is_same and self.role is not ReplicaRole.NONE:
            self._keep_followers(now_ms)
            return LeadershipChange.UNCHANGED
        self.leader_epoch = image.leader_epoch
        if image.leader == self.node_id:
            self.role = ReplicaRole.LEADER
            self.leader_epoch_start_offset = self.log_end_offset
            self.followers.clear()
            self._keep_followers(now_ms)
            return LeadershipChange.BECAME_LEADER
        self.role = ReplicaRole.FOLLOWER
        self.followers.clear()
        return LeadershipChange.BECAME_FOLLOWER

    def _keep_followers(self, now_ms: float) -> None:
        wanted = [replica for replica in self.replicas if replica != self.node_id] if self.is_leader else []
        self.followers = {
            replica: self.followers.get(replica, ReplicaProgress(caught_up_at_ms=now_ms)) for replica in wanted
        }

    def record_append(self, log_end_offset: int) -> bool:
        """The own log grew; True when the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self._advance_high_watermark()

    def record_fetch(self, replica: int, fetch_offset: int, *, now_ms: float) -> bool:
        """A follower asked for `fetch_offset`, so it has everything below; True when the high watermark moved."""
        progress = self.followers.get(replica)
        if progress is None:
            return False
        progress.log_end_offset = fetch_offset
        if fetch_offset >= self.log_end_offset:
            progress.caught_up_at_ms = now_ms
        return self._advance_high_watermark()

    def record_truncation(self, log_end_offset: int) -> None:
        """The own log was cut (only a follower or a mirror's target does this)."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restart_at(self, offset: int) -> None:
        """The own log was emptied and goes on at `offset`, above all it had (a mirror's target whose source moved on)."""
        self.log_end_offset = self.high_watermark = offset

    def refresh_high_watermark(self) -> bool:
        """Recompute after a leadership or ISR change; True when it moved."""
        return self._advance_high_watermark()

    def _advance_high_watermark(self) -> bool:
        if not self.is_leader:
            return False
        candidate = self.log_end_offset
        for replica in self.isr:
            progress = self.followers.get(replica)
            if progress is not None and progress.log_end_offset < candidate:
                candidate = progress.log_end_offset
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def has_enough_in_sync(self, min_insync_replicas: int) -> bool:
        """True when acks=all may be promised."""
        return len(self.isr) >= min(min_insync_replicas, max(len(self.replicas), 1))
