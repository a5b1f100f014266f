"""One replica of a partition on this broker: its leader, its in-sync replicas, and how far records
are safe.

Pure and without `await`: the shells (`replicas.py`, `replica_fetcher.py`, `isr_proposals.py`)
report events to it (an append, a follower's fetch, a new leadership, the controller's answer) and
act on its answers. The high watermark is the smallest log end offset of the in-sync replicas; with
one replica it is the own log end. It stands still while fewer are in sync than
`min.insync.replicas` asks for (KIP-966), so what it has passed was at that many replicas. It also
waits for a follower that is about to join them, since one that is always a round trip behind a busy
leader would never get there. Under a sync link it waits for the standby too
(`core/standby_hold.py`), to which everything below `replicated_end` is sent.

A leader changes the in-sync replicas only by proposing to the controller (KIP-497). While a
proposal is open it is not known which of the two sets is in force, so the high watermark waits for
the members of both, and no other proposal is made.

Invariants: P1 high watermark <= replicated end (while it leads) <= own log end offset. P2 it
decreases under a leadership only where a mirror has a copy truncated. P3 a leadership with a leader
epoch below the known one is refused, and so are in-sync replicas of an older partition epoch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from broker.metadata.core.cluster_image import NO_NODE, UNKNOWN_EPOCH, PartitionImage
from broker.replication.core.standby_hold import StandbyHold

UNCHECKED_EPOCH = -1
"""Broker epoch of a replica that did not say it (Fetch before version 15)."""

REFUSAL_PAUSE_MS = 1_000
"""A registration that the controller would not have in sync is not proposed again for so long: the
controller may only not know it yet.
"""


class ReplicaRole(enum.Enum):
    """The role of this broker for the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class LeadershipChange(enum.Enum):
    """The effect of a new partition image on leadership."""

    STALE = "stale"
    UNCHANGED = "unchanged"
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"


@dataclass(slots=True)
class ReplicaProgress:
    """The fetch progress of another replica, as the leader saw it."""

    log_end_offset: int = -1
    caught_up_at_ms: float = 0.0
    fetched_at_ms: float = 0.0
    leader_end_at_fetch: int = -1
    broker_epoch: int = UNCHECKED_EPOCH
    log_start_offset: int = -1
    """The replica's log start offset; -1 until the replica has reported it."""
    refused_epoch: int = UNCHECKED_EPOCH
    """The registration that the controller would not have in sync."""
    refused_at_ms: float = -math.inf

    def record(
        self, fetch_offset: int, *, leader_end: int, broker_epoch: int, log_start_offset: int, now_ms: float
    ) -> None:
        """The replica asked for `fetch_offset`. Who reaches the end as it was at the fetch before
        was caught up then.
        """
        if fetch_offset >= leader_end:
            self.caught_up_at_ms = now_ms
        elif 0 <= self.leader_end_at_fetch <= fetch_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_at_fetch = leader_end
        self.fetched_at_ms = now_ms
        self.broker_epoch = broker_epoch
        self.log_start_offset = log_start_offset

    def is_eligible(self, registered: int | None, *, now_ms: float) -> bool:
        """True when the broker that fetched is the one registered now, and the controller has not
        lately refused that one.
        """
        if registered is None or self.broker_epoch not in (UNCHECKED_EPOCH, registered):
            return False
        return registered != self.refused_epoch or now_ms - self.refused_at_ms > REFUSAL_PAUSE_MS


@dataclass(slots=True)
class Partition:
    """The state of one replica; see the module for its invariants."""

    node_id: int
    role: ReplicaRole = ReplicaRole.NONE
    leader: int = NO_NODE
    leader_epoch: int = UNKNOWN_EPOCH
    leader_epoch_start_offset: int = 0
    led_since_epoch: int = UNKNOWN_EPOCH
    """First leader epoch of the unbroken time as leader: what was appended since then is in the log
    still.
    """
    partition_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    proposed_isr: tuple[int, ...] | None = None
    joining: set[int] = field(default_factory=set)
    """On the leader, the followers that will be in sync as soon as they have what the others have;
    the high watermark waits for them.
    """
    insync_replicas_min: int = 1
    """The topic's `min.insync.replicas`; `refresh_high_watermark` is due when it changes."""
    high_watermark: int = 0
    log_end_offset: int = 0
    replicated_end: int = 0
    """On the leader, the offset below which every in-sync replica of this site has the records, so
    that no election here removes them.
    """
    flushed_end: int | None = None
    """On the leader, while a producer's append waits for a flush (flush.messages): the offset below
    which the own log is on disk. The high watermark waits for it, so that a loss of power takes
    back nothing that a consumer has read; None for no such bound.
    """
    _awaited_flush_end: int = 0
    """The end of the last append that waits for a flush."""
    hold: StandbyHold | None = None
    followers: dict[int, ReplicaProgress] = field(default_factory=dict)

    @property
    def is_leader(self) -> bool:
        """True while this broker leads."""
        return self.role is ReplicaRole.LEADER

    @property
    def is_follower(self) -> bool:
        """True while this broker follows another one."""
        return self.role is ReplicaRole.FOLLOWER

    # --- the controller's decisions

    def change(self, image: PartitionImage, *, now_ms: float) -> LeadershipChange:
        """Take the controller's decision; STALE (and nothing changed) for an older leader epoch."""
        if image.leader_epoch < self.leader_epoch:
            return LeadershipChange.STALE
        is_same = image.leader_epoch == self.leader_epoch and image.leader == self.leader
        if is_same and self.role is not ReplicaRole.NONE:
            if image.partition_epoch >= self.partition_epoch:
                self._apply_isr(image)
                self._keep_followers(now_ms)
            return LeadershipChange.UNCHANGED
        self._apply_isr(image)
        self.proposed_isr = None
        self.leader = image.leader
        was_leader = self.is_leader
        self.leader_epoch = image.leader_epoch
        self.followers.clear()
        self.joining.clear()
        self.hold = None
        self.flushed_end = None
        if image.leader == self.node_id:
            self.role = ReplicaRole.LEADER
            self.leader_epoch_start_offset = self.log_end_offset
            self.replicated_end = self.high_watermark
            if not was_leader:
                self.led_since_epoch = image.leader_epoch
            self._keep_followers(now_ms)
            return LeadershipChange.BECAME_LEADER
        self.role = ReplicaRole.FOLLOWER
        return LeadershipChange.BECAME_FOLLOWER

    def leave(self) -> None:
        """The partition is deleted here: it neither leads nor follows."""
        self.role = ReplicaRole.NONE
        self.followers.clear()
        self.joining.clear()

    def _apply_isr(self, image: PartitionImage) -> None:
        if image.partition_epoch > self.partition_epoch:
            self.proposed_isr = None
        self.partition_epoch = image.partition_epoch
        self.replicas, self.isr = image.replicas, image.isr

    def _keep_followers(self, now_ms: float) -> None:
        wanted = [replica for replica in self.replicas if replica != self.node_id] if self.is_leader else []
        self.followers = {
            replica: self.followers.get(replica)
            or ReplicaProgress(caught_up_at_ms=now_ms if replica in self.isr else -math.inf)
            for replica in wanted
        }
        self.joining.intersection_update(set(wanted).difference(self.isr))

    # --- the own log

    def record_append(self, log_end_offset: int) -> bool:
        """The own log grew; True when the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self._advance_high_watermark()

    def await_flush(self, first_offset: int, end_offset: int) -> None:
        """An append of these offsets waits for a flush, which `record_flush` ends."""
        if self.flushed_end is None:
            self.flushed_end = first_offset
        self._awaited_flush_end = end_offset

    def record_flush(self, recovery_point: int, *, is_done: bool) -> None:
        """A flush has ended, for which an append waited; where it was given up, nothing waits any
        more. A later append ends the wait with its own flush.
        """
        if self.flushed_end is None:
            return
        is_over = not is_done or recovery_point >= self._awaited_flush_end
        self.flushed_end = None if is_over else max(self.flushed_end, recovery_point)

    def record_truncation(self, log_end_offset: int) -> None:
        """The own log was truncated (only a follower or a mirror's target does this)."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        self.replicated_end = min(self.replicated_end, log_end_offset)

    def record_copy_truncation(self, log_end_offset: int) -> None:
        """The log that this broker leads was truncated for a mirror. What followers have beyond the
        new end is not what will be appended there, so it does not count as fetched.
        """
        self.record_truncation(log_end_offset)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log_end_offset)
        for progress in self.followers.values():
            progress.log_end_offset = min(progress.log_end_offset, log_end_offset)
            progress.leader_end_at_fetch = min(progress.leader_end_at_fetch, log_end_offset)

    def restart_at(self, offset: int) -> None:
        """The own log was emptied and goes on at `offset` (its source or leader begins above all
        that it had).
        """
        self.log_end_offset = self.high_watermark = self.replicated_end = offset

    # --- a follower's side

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """The leader said its high watermark; True when the own one moved, which never passes the
        own log's end.
        """
        offset = min(leader_high_watermark, self.log_end_offset)
        if self.is_leader or offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    # --- a leader's side

    def record_fetch(
        self,
        replica: int,
        fetch_offset: int,
        *,
        now_ms: float,
        broker_epoch: int = UNCHECKED_EPOCH,
        log_start_offset: int = -1,
    ) -> bool:
        """A follower asked for `fetch_offset`, so it has everything below; True when the high
        watermark moved.
        """
        progress = self.followers.get(replica)
        if progress is None:
            return False
        progress.record(
            fetch_offset,
            leader_end=self.log_end_offset,
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )
        return self._advance_high_watermark()

    def low_watermark(self, log_start_offset: int, live: Collection[int]) -> int:
        """The lowest log start among the own log and the living followers', -1 while one of these
        has not said its own.
        """
        starts = [progress.log_start_offset for node, progress in self.followers.items() if node in live]
        return min([log_start_offset, *starts])

    def confirm_caught_up(self, replica: int, *, at_ms: float) -> None:
        """The replica, which was at the log's end until now, asked for nothing else in its last
        fetch.
        """
        progress = self.followers.get(replica)
        if progress is not None and progress.log_end_offset >= self.log_end_offset:
            progress.caught_up_at_ms = max(progress.caught_up_at_ms, at_ms)
            progress.fetched_at_ms = max(progress.fetched_at_ms, at_ms)

    def refresh_high_watermark(self) -> bool:
        """Recompute after a leadership or ISR change; True when it moved."""
        return self._advance_high_watermark()

    def _advance_high_watermark(self) -> bool:
        if not self.is_leader or not self.has_enough_in_sync:
            return False
        candidate = self.log_end_offset if self.flushed_end is None else min(self.log_end_offset, self.flushed_end)
        for replica, progress in self.followers.items():
            if progress.log_end_offset < candidate and self._counts(replica):
                candidate = progress.log_end_offset
        self.replicated_end = max(self.replicated_end, candidate)
        bound = self.replicated_end if self.hold is None else self.hold.bound
        visible = self.replicated_end if bound is None else min(self.replicated_end, bound)
        if visible <= self.high_watermark:
            return False
        self.high_watermark = visible
        return True

    # --- the standby of a sync link

    def wait_for_standby(self, hold: StandbyHold | None) -> None:
        """Make the high watermark wait for a standby; None ends that. The caller must then call
        `refresh_high_watermark`.
        """
        self.hold = hold

    def record_standby(self, acknowledged: int, *, now_ms: float) -> bool:
        """The standby has everything below `acknowledged`; True when the high watermark moved."""
        if self.hold is None:
            return False
        self.hold.report(
            acknowledged, high_watermark=self.high_watermark, replicated_end=self.replicated_end, now_ms=now_ms
        )
        return self._advance_high_watermark()

    def check_standby(self, *, now_ms: float) -> bool:
        """True when the standby has been silent for so long that nothing waits for it any more."""
        return self.hold is not None and self.hold.check(
            high_watermark=self.high_watermark, replicated_end=self.replicated_end, now_ms=now_ms
        )

    def _counts(self, replica: int) -> bool:
        if replica in self.isr or replica in self.joining:
            return True
        return self.proposed_isr is not None and replica in self.proposed_isr

    @property
    def spare_in_sync(self) -> int:
        """In-sync replicas beyond those that acks=all needs, negative when there are too few; no
        more are asked for than there are.
        """
        return len(self.isr) - min(self.insync_replicas_min, max(len(self.replicas), 1))

    @property
    def has_enough_in_sync(self) -> bool:
        """True when acks=all may be promised."""
        return len(self.isr) >= min(self.insync_replicas_min, len(self.replicas) or 1)

    # --- in-sync replicas, proposed by the leader

    def expanded_isr(
        self, replica: int, broker_epochs: Mapping[int, int], *, lag_ms_max: float
    ) -> tuple[int, ...] | None:
        """The in-sync replicas to propose because of `replica`'s last fetch; None when there is
        nothing to propose.

        It has caught up when it is past what all in sync have and past where this leadership began
        (what is below, it may have to cut). One that was at the log's end within `lag_ms_max` is
        joining from now on, as Kafka's leader has it; no longer when it lags again.
        """
        progress = self.followers.get(replica)
        if progress is None or not self.is_leader or replica in self.isr:
            return None
        now_ms = progress.fetched_at_ms
        is_joining = now_ms - progress.caught_up_at_ms <= lag_ms_max and progress.is_eligible(
            broker_epochs.get(replica), now_ms=now_ms
        )
        if not is_joining:
            self.joining.discard(replica)
            return None
        self.joining.add(replica)
        has_caught_up = progress.log_end_offset >= max(self.replicated_end, self.leader_epoch_start_offset)
        if not has_caught_up or self.proposed_isr is not None:
            return None
        return tuple(node for node in self.replicas if node in self.isr or node == replica)

    def drop_joining(self, broker_epochs: Mapping[int, int], *, now_ms: float, lag_ms_max: float) -> bool:
        """Wait no longer for followers that are gone or lag; True when there were any, and
        `refresh_high_watermark` is due.
        """
        gone = {
            replica
            for replica in self.joining
            if not (progress := self.followers[replica]).is_eligible(broker_epochs.get(replica), now_ms=now_ms)
            or (progress.log_end_offset != self.log_end_offset and now_ms - progress.caught_up_at_ms > lag_ms_max)
        }
        self.joining -= gone
        return bool(gone)

    def shrunk_isr(self, *, now_ms: float, lag_ms_max: float) -> tuple[int, ...] | None:
        """The in-sync replicas to propose without those that have not been at the log's end for
        `lag_ms_max`; None for no change.
        """
        if not self.is_leader or self.proposed_isr is not None:
            return None
        lagging = {
            replica
            for replica in self.isr
            if (progress := self.followers.get(replica)) is not None
            and progress.log_end_offset != self.log_end_offset
            and now_ms - progress.caught_up_at_ms > lag_ms_max
        }
        return tuple(node for node in self.isr if node not in lagging) if lagging else None

    def propose_isr(self, isr: tuple[int, ...]) -> None:
        """The proposal is on its way: from now on the high watermark waits for both sets."""
        self.proposed_isr = isr

    def withdraw_proposal(self) -> None:
        """The controller has refused: the known in-sync replicas stay."""
        self.proposed_isr = None

    def refuse(self, replica: int, broker_epoch: int, *, now_ms: float) -> None:
        """The controller does not want this registration of `replica` in sync, which may be about
        to stop: wait for it no longer.
        """
        progress = self.followers.get(replica)
        if progress is not None:
            progress.refused_epoch, progress.refused_at_ms = broker_epoch, now_ms
        self.joining.discard(replica)
