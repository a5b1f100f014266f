"""The replication machine of one replica: its leader, its in-sync replicas, and how far records are
safe.

Pure and without `await`. Each command is a separate method, because appends and fetches give
several in a millisecond. A command changes the state and returns its effects
(`core/partition_effects.py`), on which `Replicas.act` acts. The high watermark is the smallest log
end offset of the in-sync replicas; with one replica it is the own log end. It does not move while
fewer than `min.insync.replicas` are in sync (KIP-966), so records below it were at that many
replicas. It also waits for a follower that is about to join them: a follower that is always one
round trip behind a busy leader could otherwise never join. Under a sync link it waits for the
standby too (`core/standby_hold.py`), to which everything below the mirrorable end is sent.

A leader changes the in-sync replicas only by proposing to the controller (KIP-497). While a
proposal is open it is not known which of the two sets is in force, so the high watermark waits for
the members of both, and no other proposal is made.

Invariants: P1 to P6, see `core/partition_invariants.py`. InvariantBroken has the last decisions.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Final

from mypy_extensions import mypyc_attr

from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.lag_bounded_hold import LagBoundedHold
from broker.replication.core.partition_effects import (
    FETCHED,
    LOG_REPLACED,
    NO_EFFECTS,
    Effects,
    FirstFetchAwaited,
    HighWatermarkMoved,
    IsrProposed,
    LeadershipBegan,
    LeadershipLost,
    LogGrew,
    StandbyCaughtUp,
    StandbyGivenUp,
    Wake,
)
from broker.replication.core.partition_invariants import violations
from broker.replication.core.partition_state import PartitionState, Reached, ReplicaRole
from broker.replication.core.replica_progress import ReplicaProgress
from broker.replication.core.standby_terms import StandbyTerms
from broker.replication.core.wake_ups import Change
from runtime.invariants import InvariantBroken
from wire.protocol.ids import UNCHECKED_EPOCH

_LEADERSHIP: Final = Wake(Change.LEADERSHIP)


class LeadershipChange(enum.Enum):
    """The effect of a new partition image on leadership."""

    STALE = "stale"
    UNCHANGED = "unchanged"
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"


@mypyc_attr(allow_interpreted_subclasses=True)
class Partition(PartitionState):
    """The machine of one replica; see the module for its invariants."""

    # --- the controller's decisions

    def change(
        self, image: PartitionImage, *, now_ms: float, terms: StandbyTerms | None = None
    ) -> tuple[LeadershipChange, Effects]:
        """Follow the controller's decision and the link's terms; STALE (and nothing changed) for an
        older leader epoch.
        """
        # an image of the same epoch may have another ISR, other configs or terms of the link
        if image.leader_epoch < self.leader_epoch:
            return LeadershipChange.STALE, NO_EFFECTS
        is_same = image.leader_epoch == self.leader_epoch and image.leader == self.leader
        effects: Effects = NO_EFFECTS
        if (image.replicas, image.isr) != (self.replicas, self.isr):
            effects += (Wake(Change.REPLICAS),)
        change = LeadershipChange.UNCHANGED
        # `NONE` counts as a new leadership: a replica that was removed and returns has forgotten
        # its followers
        if is_same and self.role is not ReplicaRole.NONE:
            # an answer to a proposal and an image travel separately: the higher partition epoch is
            # the newer one
            if image.partition_epoch >= self.partition_epoch:
                self._apply_isr(image)
                self._keep_followers(now_ms)
        else:
            self._apply_isr(image)
            change, began = self._begin_leadership(image, now_ms)
            effects += began
        self.follow_terms(terms if self.is_leader else None, now_ms=now_ms)
        if effects:
            self._note(change, "of", image.leader, "in epoch", image.leader_epoch, "in sync", self.isr)
        return change, self._advance(effects)

    def _begin_leadership(self, image: PartitionImage, now_ms: float) -> tuple[LeadershipChange, Effects]:
        was_leader, former_epoch = self.is_leader, self.leader_epoch
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self._forget_leadership()
        # the earlier leader's mirrorable end is not known here; the records below the high
        # watermark are mirrorable in any case
        self.mirrorable_end = self.high_watermark
        if image.leader == self.node_id:
            self.role = ReplicaRole.LEADER
            # followers may have to truncate below this point: only a fetch above it proves the same
            # history
            self.leader_epoch_start_offset = self.log_end_offset
            if not was_leader:
                self.led_since_epoch = image.leader_epoch
            self._keep_followers(now_ms)
            began: Effects = (LeadershipBegan(self.leader_epoch), _LEADERSHIP)
            return LeadershipChange.BECAME_LEADER, began
        self.role = ReplicaRole.FOLLOWER
        lost: Effects = (LeadershipLost(former_epoch),) if was_leader else NO_EFFECTS
        return LeadershipChange.BECAME_FOLLOWER, (*lost, _LEADERSHIP)

    def leave(self) -> Effects:
        """The replica is deleted here, or its disk is lost: it neither leads nor follows."""
        lost: Effects = (LeadershipLost(self.leader_epoch),) if self.is_leader else NO_EFFECTS
        self.role = ReplicaRole.NONE
        self._forget_leadership()
        self._note("left")
        return (*lost, _LEADERSHIP)

    def _forget_leadership(self) -> None:
        self.proposed_isr = self.hold = self.flushed_end = None
        self.has_acknowledged_alone = False
        self.followers.clear()
        self.joining.clear()

    def _apply_isr(self, image: PartitionImage) -> None:
        if image.partition_epoch > self.partition_epoch:
            self.proposed_isr = None
        self.partition_epoch = image.partition_epoch
        self.replicas, self.isr = image.replicas, image.isr

    def _keep_followers(self, now_ms: float) -> None:
        if not (self.followers or self.joining or (self.is_leader and self.replicas != (self.node_id,))):
            return
        wanted = [replica for replica in self.replicas if replica != self.node_id] if self.is_leader else []
        self.followers = {
            replica: self.followers.get(replica)
            # being in sync counts as caught up now: it has lag_ms_max from here before it is
            # removed
            or ReplicaProgress(caught_up_at_ms=now_ms if replica in self.isr else -math.inf)
            for replica in wanted
        }
        self.joining.intersection_update(set(wanted).difference(self.isr))

    def require_in_sync(self, insync_replicas_min: int) -> Effects:
        """The topic's `min.insync.replicas` is this now."""
        self.insync_replicas_min = insync_replicas_min
        return self._advance(NO_EFFECTS)

    # --- the own log

    def record_append(self, log_end_offset: int) -> Effects:
        """The own log grew."""
        grew = LogGrew(self.log_end_offset)
        self.log_end_offset = log_end_offset
        unfetched = self.unfetched_in_sync
        return self._advance((grew, FirstFetchAwaited(unfetched)) if unfetched else (grew,))

    def await_flush(self, first_offset: int, end_offset: int) -> None:
        """An append of these offsets waits for a flush, which `record_flush` ends."""
        # the first append sets the bound; later ones only move the end that a flush has to reach
        if self.flushed_end is None:
            self.flushed_end = first_offset
        self._awaited_flush_end = end_offset

    def record_flush(self, recovery_point: int, *, is_done: bool) -> Effects:
        """A flush for which an append waited has ended. No request waits for a flush that was given
        up; a later append waits for its own flush.
        """
        if self.flushed_end is not None:
            is_over = not is_done or recovery_point >= self._awaited_flush_end
            self.flushed_end = None if is_over else max(self.flushed_end, recovery_point)
        return self._advance(NO_EFFECTS)

    def record_truncation(self, log_end_offset: int) -> Effects:
        """The own log was truncated (only a follower or a mirror's target does this)."""
        self._note("truncated from", self.log_end_offset, "to", log_end_offset, "committed", self.high_watermark)
        self.truncation_count += 1
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        self.mirrorable_end = min(self.mirrorable_end, log_end_offset)
        return LOG_REPLACED

    def record_copy_truncation(self, log_end_offset: int) -> Effects:
        """The log that this broker leads was truncated for a mirror. The followers' records beyond
        the new end differ from the records that this leader will append there, so they do not count
        as fetched.
        """
        effects = self.record_truncation(log_end_offset)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log_end_offset)
        for progress in self.followers.values():
            progress.truncate(log_end_offset)
        return effects

    def restart_at(self, offset: int) -> Effects:
        """The own log was emptied and continues at `offset` (its source or leader begins above all
        its records).
        """
        self._note("restarts at", offset, "after", self.log_end_offset)
        self.truncation_count += 1
        moved = HighWatermarkMoved(self.high_watermark, offset)
        self.log_end_offset = self.high_watermark = self.mirrorable_end = offset
        return (moved, *LOG_REPLACED)

    # --- a follower's side

    def follow_high_watermark(self, leader_high_watermark: int) -> Effects:
        """The leader reported its high watermark; the own one never exceeds the own log end."""
        # the leader may know more than this follower has: the rest comes with its records
        former, offset = self.high_watermark, min(leader_high_watermark, self.log_end_offset)
        if self.is_leader or offset <= former:
            return NO_EFFECTS
        self.high_watermark = offset
        self.mirrorable_end = max(self.mirrorable_end, offset)
        return (HighWatermarkMoved(former, offset),)

    # --- a leader's side

    def record_fetch(
        self,
        replica: int,
        fetch_offset: int,
        *,
        now_ms: float,
        broker_epoch: int = UNCHECKED_EPOCH,
        log_start_offset: int = -1,
    ) -> Effects:
        """A follower asked for `fetch_offset`, so it has everything below."""
        progress = self.followers.get(replica)
        if progress is None:
            return NO_EFFECTS
        progress.record(
            fetch_offset,
            leader_end=self.log_end_offset,
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )
        # In-sync replicas have all records below the high watermark. This one has lost some, or has
        # emptied its log for a new copy: it must not be elected until it has them again.
        if fetch_offset < self.high_watermark and replica in self.isr and self.proposed_isr is None:
            progress.caught_up_at_ms = -math.inf
            return self.propose_isr(tuple(node for node in self.isr if node != replica)) + self._advance(FETCHED)
        return self._advance(FETCHED)

    def confirm_caught_up(self, replica: int, *, log_end_offset: int, at_ms: float) -> None:
        """The replica was at the log's end, which was `log_end_offset` until now, and its last
        fetch asked for nothing else.
        """
        progress = self.followers.get(replica)
        # a follower that lacked records cannot have been at the end, so its session is out of date
        if progress is not None and progress.log_end_offset >= log_end_offset:
            progress.caught_up_at_ms = max(progress.caught_up_at_ms, at_ms)
            progress.fetched_at_ms = max(progress.fetched_at_ms, at_ms)

    # --- the standby of a sync link

    def record_standby(self, acknowledged: int, *, now_ms: float) -> Effects:
        """The standby has everything below `acknowledged`."""
        hold = self.hold
        if hold is None:
            return NO_EFFECTS
        was_degraded = hold.is_degraded
        hold.report(acknowledged, high_watermark=self.high_watermark, mirrorable_end=self.mirrorable_end, now_ms=now_ms)
        has_caught_up = was_degraded and not hold.is_degraded
        return self._advance((StandbyCaughtUp(acknowledged),) if has_caught_up else NO_EFFECTS)

    def check_standby(self, *, now_ms: float) -> Effects:
        """Give up a standby that has not reported for longer than its link allows. Where the link
        bounds the standby's lag, move the bound with the clock.
        """
        hold = self.hold
        if hold is None:
            return NO_EFFECTS
        if not hold.check(high_watermark=self.high_watermark, mirrorable_end=self.mirrorable_end, now_ms=now_ms):
            # a plain hold moves by reports alone; the bound on a lag moves with the clock
            return self._advance(NO_EFFECTS) if isinstance(hold, LagBoundedHold) else NO_EFFECTS
        self._note("gives up its standby, which has acknowledged", hold.acknowledged)
        return self._advance((StandbyGivenUp(hold.acknowledged, self.high_watermark),))

    # --- in-sync replicas, proposed by the leader

    def consider(self, replica: int, broker_epochs: Mapping[int, int], *, lag_ms_max: float) -> Effects:
        """A follower that is not in sync has fetched: propose it if it has caught up, and stop
        waiting for it if it has fallen behind again. `broker_epochs` are the registered brokers'.
        """
        was_joining = replica in self.joining
        isr = self.expanded_isr(replica, broker_epochs, lag_ms_max=lag_ms_max)
        if isr is not None:
            return self.propose_isr(isr)
        return self._advance(NO_EFFECTS) if was_joining and replica not in self.joining else NO_EFFECTS

    def expanded_isr(
        self, replica: int, broker_epochs: Mapping[int, int], *, lag_ms_max: float
    ) -> tuple[int, ...] | None:
        """The in-sync replicas to propose because of `replica`'s last fetch; None when there is
        nothing to propose.

        It has caught up when it has all records of the in-sync replicas and is past the start of
        this leadership (below that, it may have to truncate). A follower that was at the log's end
        within `lag_ms_max` is joining, as in Kafka's leader, until it lags again.
        """
        progress = self.followers.get(replica)
        if progress is None or not self.is_leader or replica in self.isr:
            return None
        now_ms = progress.fetched_at_ms
        # the time of its fetch, not of this check: a late call must not make it lag
        is_joining = now_ms - progress.caught_up_at_ms <= lag_ms_max and progress.is_eligible(
            broker_epochs.get(replica), now_ms=now_ms
        )
        if not is_joining:
            self.joining.discard(replica)
            return None
        self.joining.add(replica)
        # `mirrorable_end`, not the high watermark, which a sync link delays because of the other
        # site
        has_caught_up = progress.log_end_offset >= max(self.mirrorable_end, self.leader_epoch_start_offset)
        if not has_caught_up or self.proposed_isr is not None:
            return None
        # in the order of the assignment: the preferred leader stays first
        return tuple(node for node in self.replicas if node in self.isr or node == replica)

    def drop_joining(self, broker_epochs: Mapping[int, int], *, now_ms: float, lag_ms_max: float) -> Effects:
        """Stop waiting for followers that have disconnected or lag."""
        gone = {
            replica
            for replica in self.joining
            if not (progress := self.followers[replica]).is_eligible(broker_epochs.get(replica), now_ms=now_ms)
            or progress.lags(self.log_end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max)
        }
        self.joining -= gone
        return self._advance(NO_EFFECTS) if gone else NO_EFFECTS

    def shrink_isr(self, *, now_ms: float, lag_ms_max: float) -> Effects:
        """Propose the in-sync replicas without those that have not been at the log's end for
        `lag_ms_max`.
        """
        if len(self.isr) < 2 or not self.is_leader or self.proposed_isr is not None:
            return NO_EFFECTS
        lagging = {
            replica
            for replica in self.isr
            if (progress := self.followers.get(replica)) is not None
            # one proposal names all that lag: each costs the controller a write
            and progress.lags(self.log_end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max)
        }
        return self.propose_isr(tuple(node for node in self.isr if node not in lagging)) if lagging else NO_EFFECTS

    def propose_isr(self, isr: tuple[int, ...]) -> Effects:
        """The proposal is being sent: from now on the high watermark waits for both sets."""
        self._note("proposes", isr, "in sync", self.isr)
        self.proposed_isr = isr
        return (IsrProposed(isr),)

    def withdraw_proposal(self) -> Effects:
        """The controller has refused: the known in-sync replicas stay."""
        self._note("withdraws", self.proposed_isr)
        self.proposed_isr = None
        return self._advance(NO_EFFECTS)

    def refuse(self, replica: int, broker_epoch: int, *, now_ms: float) -> Effects:
        """The controller does not want this registration of `replica` in sync, because it may be
        about to stop: stop waiting for it.
        """
        progress = self.followers.get(replica)
        if progress is not None:
            # noted by registration: a restarted broker gets a new epoch and is proposed at once
            progress.refused_epoch, progress.refused_at_ms = broker_epoch, now_ms
        self.joining.discard(replica)
        return self._advance(NO_EFFECTS)

    # --- checks

    def check_invariants(self) -> None:
        """Raises InvariantBroken with the last decisions if the state violates an invariant; tests
        call it after every command.
        """
        problems = [*violations(self, self._checked)]
        if problems:
            raise InvariantBroken("; ".join(problems) + "\nstory:\n" + self._story_text())
        self._checked = Reached.of(self)
