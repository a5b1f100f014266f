"""One partition's flow from source to target: decides what to ask, fetch and queue, and when to
start again.

`decide(command, now_ms)` changes nothing; `apply(facts)` is the only change of state. Memory is all
the commit there is: after any crash the target's log end is the position (invariant M1: the target
is always a prefix of the source).

  a. A generation starts with settling: nothing older is queued or in flight when the target is
     asked for its end.
  b. Before a batch is fetched, the source's leader confirms that it has the target's last epoch up
     to the target's end.
  c. Batches are queued in one chain: each starts where the target's log must end before it.
  d. Losing the source, or finding that its log begins later by now, keeps fetched batches on their
     way; losing the target keeps them queued; only a refusal, a dead worker or a changed role
     starts a new generation.
  e. A missing, recreated, refused or diverged history is a state with a reason (GAP, RESET,
     REFUSED, FAULTED), never skipped silently (M9). A diverged copy becomes a prefix again where
     the link has such copies reinstated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, assert_never

from mirror.flow.core.divergence import begins_within, find_divergence, promised_from, rereads_last_batch
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    CheckSource,
    ClockWentBack,
    Command,
    CopyBegins,
    CopyNotReinstated,
    CopyReinstated,
    CopyRenewed,
    Discard,
    Effect,
    Fetch,
    FetchFailed,
    FindTarget,
    LinkTurned,
    NotEnqueued,
    NothingFetched,
    Pause,
    QueueBatches,
    RefreshLink,
    RefreshMetadata,
    ReinstateCopy,
    Resume,
    RetryDue,
    RetryLater,
    Settled,
    Side,
    SourceChecked,
    SourceLeaderChanged,
    SourceNotFound,
    SourceTrouble,
    Start,
    StopFetching,
    TargetDiffers,
    TargetFound,
    TargetNotFound,
    TargetRefusal,
    TargetWaiting,
    TombstonesKept,
    TopicAgrees,
    TopicConflict,
    TopicHidden,
    TopicRefused,
    TopicReplaced,
)
from mirror.flow.core.flow_state import TRANSITIONS, FlowFacts, FlowState, Step
from mirror.flow.core.lag import UNKNOWN, moved, put_back, received, without_ends
from mirror.flow.core.tombstones import tombstone_risk
from mirror.link.core.link_roles import GapPolicy, LinkRole
from runtime.invariants import InvariantBroken

STORY_LENGTH = 16
SKIPPING = ", or with antipode.gap.policy=skip-and-record mirroring continues after them"
CORRUPT_ATTEMPTS_MAX = 3
"""Number of times that a flow fetches batches that failed their checksum at the target, before it
is FAULTED.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The next facts, what to do, and why (empty: nothing to log)."""

    facts: FlowFacts
    effects: tuple[Effect, ...] = ()
    reason: str = ""


class Flow:
    """The machine of one partition."""

    def __init__(
        self,
        name: str,
        *,
        gap_policy: GapPolicy = GapPolicy.HALT,
        started_at_ms: int = 0,
        way_out: str = "",
        target_compares: bool = True,
    ) -> None:
        """`way_out` is the advice to a person who wants the copy made anew; reasons that need it
        end with it. `target_compares`: the target compares a batch that it has with one that is
        sent again.
        """
        self._target_compares = target_compares
        self._name = name
        self._way_out = f"; {way_out}" if way_out else ""
        self._gap_policy = gap_policy
        facts = FlowFacts()
        self.facts = facts._replace(progress=facts.progress._replace(started_at_ms=started_at_ms))
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)
        self._deciders: dict[type, Callable[[Any, int], Decision]] = {
            Start: self._start,
            CopyBegins: self._copy_begins,
            Settled: self._settled,
            TargetFound: self._target_found,
            TargetNotFound: self._target_not_found,
            TargetDiffers: self._target_differs,
            SourceChecked: self._source_checked,
            SourceNotFound: self._source_not_found,
            CopyReinstated: self._copy_reinstated,
            CopyNotReinstated: self._copy_not_reinstated,
            BatchesFetched: self._batches_fetched,
            NothingFetched: self._nothing_fetched,
            FetchFailed: self._fetch_failed,
            NotEnqueued: self._not_enqueued,
            Acknowledged: self._acknowledged,
            AppendRefused: self._append_refused,
            TargetWaiting: self._target_waiting,
            RetryDue: self._retry_due,
            LinkTurned: self._link_turned,
            Pause: self._pause,
            Resume: self._resume,
            SourceLeaderChanged: self._source_leader_changed,
            TombstonesKept: self._tombstones_kept,
            ClockWentBack: self._clock_went_back,
            TopicReplaced: self._topic_replaced,
            TopicConflict: self._topic_conflict,
            TopicHidden: self._topic_hidden,
            TopicRefused: self._topic_refused,
            CopyRenewed: self._copy_renewed,
            TopicAgrees: self._topic_agrees,
        }

    def decide(self, command: Command, now_ms: int) -> Decision:
        """Decide a command; the state does not change yet."""
        generation = getattr(command, "generation", self.facts.generation)
        if generation != self.facts.generation:
            return Decision(self.facts)
        return self._deciders[type(command)](command, now_ms)

    def apply(self, facts: FlowFacts) -> None:
        """Take over the facts of a decision. InvariantBroken when they cannot follow the present
        ones.
        """
        before = self.facts
        if facts is before:
            return
        if facts.state is not before.state and facts.state not in TRANSITIONS[before.state]:
            self._break(f"{before.state.value} may not become {facts.state.value} ({facts.reason})")
        if facts.generation < before.generation:
            self._break(f"generation goes back from {before.generation} to {facts.generation}")
        if facts.reason != before.reason or facts.step is not before.step:
            self._story.append(f"g{facts.generation} {facts.state.value} {facts.step.value}: {facts.reason}")
        self.facts = facts

    def check_invariants(self) -> None:
        """InvariantBroken when the facts contradict each other; for tests, after every apply."""
        facts = self.facts
        if facts.state in _RUNNING and facts.step is not Step.STREAMING:
            self._break(f"{facts.state.value} while {facts.step.value}")
        if facts.state in _HELD and facts.step is not Step.IDLE:
            self._break(f"{facts.state.value} while {facts.step.value}")
        if facts.step is Step.STREAMING and not facts.is_chained:
            self._break("streaming without a chain")

    @property
    def story(self) -> tuple[str, ...]:
        """The last changes, oldest first."""
        return tuple(self._story)

    def _break(self, what: str) -> None:
        raise InvariantBroken(f"{self._name}: {what}; story: {' | '.join(self._story)}")

    # Starting, stopping, waiting.

    def _restart(self, reason: str, *extra: Effect, state: FlowState | None = None, attempts: int = 0) -> Decision:
        """A new generation; it waits before it asks the target when `attempts` have failed
        already.
        """
        facts = self.facts
        generation = facts.generation + 1
        new = facts._replace(
            state=state or self._preparing_label(),
            reason=reason,
            step=Step.SETTLING,
            generation=generation,
            attempts=attempts,
            is_chained=False,
        )
        return Decision(new, (StopFetching(), Discard(generation=generation), *extra), reason)

    def _halt(self, state: FlowState, reason: str) -> Decision:
        """Stop in a state that needs a person, and look again now and then whether its cause is
        gone.
        """
        return self._restart(reason, state=state, attempts=self.facts.attempts + 1)

    def _hold(self, state: FlowState, reason: str, *extra: Effect, role: LinkRole | None = None) -> Decision:
        """Stop until another command arrives; queued batches are dropped."""
        facts = self.facts
        generation = facts.generation + 1
        new = facts._replace(
            state=state,
            reason=reason,
            step=Step.IDLE,
            generation=generation,
            is_chained=False,
            role=role or facts.role,
        )
        return Decision(new, (StopFetching(), Discard(generation=generation), *extra), reason)

    def _wait(self, reason: str, *extra: Effect, state: FlowState | None = None) -> Decision:
        facts = self.facts
        attempts = facts.attempts + 1
        label = state or self._preparing_label()
        new = facts._replace(state=label, reason=reason, step=Step.WAITING, attempts=attempts)
        retry = RetryLater(generation=facts.generation, attempt=attempts, is_slow=label in _NEEDS_A_PERSON)
        return Decision(new, (*extra, StopFetching(), retry), reason)

    def _preparing_label(self) -> FlowState:
        return self.facts.state if self.facts.state in _STICKY else FlowState.PREPARING

    def _running_label(self) -> FlowState:
        return FlowState.PROMOTING if self.facts.role is LinkRole.DRAINING else FlowState.MIRRORING

    def _ignore(self) -> Decision:
        return Decision(self.facts)

    def _start(self, command: Start, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.role in (LinkRole.TURNED, LinkRole.GONE) or facts.state in _HELD or facts.waits_for_topic:
            return self._ignore()
        return self._restart(command.reason)

    def _copy_begins(self, command: CopyBegins, now_ms: int) -> Decision:  # noqa: ARG002
        return Decision(self.facts._replace(begins_offset=command.offset))

    def _settled(self, command: Settled, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.SETTLING:
            return self._ignore()
        if facts.attempts > 0:
            new = facts._replace(step=Step.WAITING)
            is_slow = facts.state in _NEEDS_A_PERSON
            retry = RetryLater(generation=facts.generation, attempt=facts.attempts, is_slow=is_slow)
            return Decision(new, (retry,))
        return Decision(facts._replace(step=Step.FINDING_TARGET), (FindTarget(generation=facts.generation),))

    def _retry_due(self, command: RetryDue, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.WAITING:
            return self._ignore()
        if facts.is_chained:
            # What was fetched is still on its way to the target: go on from the end of the chain,
            # not from the target.
            check = CheckSource(generation=facts.generation, epoch=facts.chain_epoch)
            return Decision(facts._replace(step=Step.CHECKING_SOURCE), (check,))
        return Decision(facts._replace(step=Step.FINDING_TARGET), (FindTarget(generation=facts.generation),))

    # Finding positions.

    def _target_found(self, command: TargetFound, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.FINDING_TARGET:
            return self._ignore()
        has_lost = command.log_end_offset < facts.progress.target_log_end_offset
        new = facts._replace(
            step=Step.CHECKING_SOURCE,
            target_losses=facts.target_losses + has_lost,
            chain_offset=command.log_end_offset,
            chain_epoch=command.last_epoch,
            target_log_start_offset=command.log_start_offset,
            progress=moved(facts.progress, target_log_end_offset=command.log_end_offset),
        )
        return Decision(new, (CheckSource(generation=facts.generation, epoch=command.last_epoch),))

    def _target_not_found(self, command: TargetNotFound, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.FINDING_TARGET:
            return self._ignore()
        state = FlowState.SOURCE_UNAVAILABLE if command.is_for_source else None
        return self._wait(command.reason, RefreshMetadata(side=Side.TARGET), state=state)

    def _target_differs(self, command: TargetDiffers, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.FINDING_TARGET:
            return self._ignore()
        return self._halt(FlowState.FAULTED, command.reason)

    def _source_not_found(self, command: SourceNotFound, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.CHECKING_SOURCE:
            return self._ignore()
        return self._wait(command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE)

    def _source_checked(self, command: SourceChecked, now_ms: int) -> Decision:
        facts = self.facts
        if facts.step is not Step.CHECKING_SOURCE:
            return self._ignore()
        divergence = find_divergence(facts, command)
        if divergence:
            return self._diverged(divergence)
        missing = max(0, command.log_start_offset - facts.chain_offset)
        expired = max(0, command.log_start_offset - promised_from(facts, command))
        progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
        is_in_hand = facts.is_chained and facts.progress.target_log_end_offset < facts.chain_offset
        if expired and self._gap_policy is GapPolicy.HALT:
            gap = (
                f"the source's log starts at {command.log_start_offset}, the mirror ends at {facts.chain_offset}: "
                f"{expired} offsets expired before they were mirrored{self._way_out}{SKIPPING if self._way_out else ''}"
            )
            halted = self._wait(gap, state=FlowState.GAP) if is_in_hand else self._halt(FlowState.GAP, gap)
            return replace(halted, facts=halted.facts._replace(progress=progress))
        if missing and is_in_hand:
            return self._wait(
                f"the source's log starts at {command.log_start_offset}: batches fetched before that are delivered first"
            )
        offset = facts.chain_offset + missing
        is_new = facts.chain_offset == 0 and not facts.has_streamed
        rereads = self._target_compares and rereads_last_batch(facts, command)
        reason = f"mirroring from offset {offset}"
        if expired:
            reason += f"; {expired} offsets before it had expired at the source"
        elif missing:
            reason += "; the source had deleted the earlier records when the copy was made"
        # What made the flow FAULTED may be the comparison that comes now.
        is_in_doubt = rereads and facts.state is FlowState.FAULTED
        new = facts._replace(
            state=facts.state if is_in_doubt else self._running_label(),
            reason=facts.reason if is_in_doubt else reason,
            step=Step.STREAMING,
            is_chained=True,
            has_streamed=True,
            rereads_last_batch=rereads,
            copy_began_ms=now_ms if is_new and facts.copy_began_ms == UNKNOWN else facts.copy_began_ms,
            is_resuming=facts.is_resuming or not facts.has_streamed,
            chain_offset=offset,
            chain_epoch=-1 if missing else facts.chain_epoch,
            restart_offset=offset if missing else facts.restart_offset,
            source_log_start_offset=command.log_start_offset,
            skipped_records=facts.skipped_records + expired,
            progress=progress,
        )
        return Decision(new, (Fetch(generation=facts.generation, offset=new.fetch_offset),), new.reason)

    def _diverged(self, divergence: str) -> Decision:
        facts = self.facts
        if facts.is_chained:
            # The copy is truncated only where its log is known to end.
            return self._restart(divergence)
        new = facts._replace(step=Step.REINSTATING, reason=divergence)
        return Decision(new, (ReinstateCopy(generation=facts.generation, reason=divergence),), divergence)

    def _copy_reinstated(self, command: CopyReinstated, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.REINSTATING:
            return self._ignore()
        reason = f"the copy was truncated to offset {command.log_end_offset}; what it had alone is in quarantine"
        return self._restart(reason, attempts=self.facts.attempts + 1)

    def _copy_not_reinstated(self, command: CopyNotReinstated, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.REINSTATING:
            return self._ignore()
        reason = f"{facts.reason}; {command.advice}" if command.advice else f"{facts.reason}{self._way_out}"
        if not command.is_final:
            return self._restart(reason, attempts=facts.attempts + 1)
        return self._halt(FlowState.FAULTED, reason)

    def _source_leader_changed(self, command: SourceLeaderChanged, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.state is FlowState.PAUSED:
            return Decision(facts._replace(is_chained=False))
        if facts.step is not Step.STREAMING:
            return self._ignore()
        # After an unclean election it may have other records where the chain ends, and more of
        # them.
        new = facts._replace(state=FlowState.PREPARING, reason=command.reason, step=Step.CHECKING_SOURCE)
        check = CheckSource(generation=facts.generation, epoch=facts.chain_epoch)
        return Decision(new, (StopFetching(), check), command.reason)

    # Streaming.

    def _batches_fetched(self, command: BatchesFetched, now_ms: int) -> Decision:
        facts = self.facts
        run = command.run
        if facts.step is not Step.STREAMING or command.fetch_offset != facts.fetch_offset:
            return self._ignore()
        is_within = begins_within(facts, run)
        may_begin_before = is_within or facts.rereads_last_batch
        if (run.first_offset < facts.chain_offset and not may_begin_before) or run.first_epoch < facts.chain_epoch:
            return self._halt(
                FlowState.FAULTED,
                f"the source's batch at offset {run.first_offset} (leader epoch {run.first_epoch}) does not continue the "
                f"mirror, which ends at {facts.chain_offset} (leader epoch {facts.chain_epoch}){self._way_out}",
            )
        doubt = tombstone_risk(facts, run, now_ms=now_ms)
        expected = run.first_offset if is_within else facts.chain_offset
        new = facts._replace(
            reason=doubt or facts.reason,
            restart_offset=expected if is_within else facts.restart_offset,
            chain_offset=run.next_offset,
            chain_epoch=run.last_epoch,
            source_log_start_offset=command.log_start_offset,
            progress=received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms),
            may_lack_tombstones=facts.may_lack_tombstones or bool(doubt),
            is_resuming=facts.is_resuming and run.is_repetition,
            rereads_last_batch=False,
        )
        queue = QueueBatches(generation=facts.generation, expected_log_end_offset=expected)
        return Decision(new, (queue, Fetch(generation=facts.generation, offset=run.next_offset)), doubt)

    def _tombstones_kept(self, command: TombstonesKept, now_ms: int) -> Decision:  # noqa: ARG002
        return Decision(self.facts._replace(tombstones_kept_ms=command.kept_ms))

    def _clock_went_back(self, command: ClockWentBack, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        began_ms = facts.copy_began_ms if facts.copy_began_ms == UNKNOWN else facts.copy_began_ms - command.by_ms
        return Decision(facts._replace(progress=put_back(facts.progress, command.by_ms), copy_began_ms=began_ms))

    def _nothing_fetched(self, command: NothingFetched, now_ms: int) -> Decision:
        facts = self.facts
        if facts.step is not Step.STREAMING:
            return self._ignore()
        progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
        is_complete = progress.target_log_end_offset >= facts.chain_offset
        is_unanswered = facts.rereads_last_batch and command.high_watermark >= facts.chain_offset
        is_beyond_doubt = facts.state is FlowState.FAULTED and is_unanswered
        new = facts._replace(
            state=self._running_label() if is_beyond_doubt else facts.state,
            reason="the source has compacted the last batch of the copy away" if is_beyond_doubt else facts.reason,
            source_log_start_offset=command.log_start_offset,
            progress=progress,
            attempts=0 if is_complete else facts.attempts,
        )
        return Decision(new)

    def _fetch_failed(self, command: FetchFailed, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.STREAMING:
            return self._ignore()
        match command.trouble:
            case SourceTrouble.UNREACHABLE:
                return self._wait(command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE)
            case SourceTrouble.MOVED:
                return self._wait(command.reason, RefreshMetadata(side=Side.SOURCE))
            case SourceTrouble.OUT_OF_RANGE:
                return self._wait(command.reason)
            case SourceTrouble.MALFORMED:
                return self._corrupt(command.reason)
            case _:
                assert_never(command.trouble)

    def _corrupt(self, reason: str) -> Decision:
        attempts = self.facts.attempts + 1
        if attempts > CORRUPT_ATTEMPTS_MAX:
            return self._halt(FlowState.FAULTED, reason)
        return self._restart(reason, attempts=attempts)

    def _not_enqueued(self, command: NotEnqueued, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        rereads = command.rereads_last_batch
        is_same_end = command.offset == facts.chain_offset and rereads is facts.rereads_last_batch
        if not facts.is_chained or command.offset > facts.chain_offset or is_same_end:
            return self._ignore()
        if facts.step is Step.CHECKING_SOURCE:
            # The answer would be about the end of the chain that it has no more.
            return self._restart("the queue stayed full during the check of the source")
        new = facts._replace(
            chain_offset=command.offset,
            chain_epoch=command.epoch,
            restart_offset=command.restart_offset,
            rereads_last_batch=rereads,
        )
        fetch = (Fetch(generation=facts.generation, offset=new.fetch_offset),) if facts.step is Step.STREAMING else ()
        return Decision(new, fetch)

    def _acknowledged(self, command: Acknowledged, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        before = facts.progress
        progress = moved(
            before,
            target_log_end_offset=max(before.target_log_end_offset, command.log_end_offset),
            mirrored_bytes=before.mirrored_bytes + command.size_bytes,
            mirrored_records=before.mirrored_records + command.record_count,
            skipped_bytes=before.skipped_bytes + command.skipped_bytes,
            skipped_records=before.skipped_records + command.skipped_records,
            mirrored_timestamp_ms=max(before.mirrored_timestamp_ms, command.max_timestamp_ms),
        )
        if facts.step is not Step.STREAMING:
            return Decision(facts._replace(progress=progress))
        label = self._running_label()
        reason = (
            facts.reason if facts.state is label else f"mirroring; the target acknowledged {command.log_end_offset}"
        )
        logged = "" if facts.state is label else reason
        return Decision(facts._replace(state=label, reason=reason, attempts=0, progress=progress), (), logged)

    def _append_refused(self, command: AppendRefused, now_ms: int) -> Decision:  # noqa: ARG002
        if not self.facts.is_chained:
            return self._ignore()
        if self.facts.state in _HELD:
            return self._hold(self.facts.state, self.facts.reason)
        again = self.facts.attempts + 1
        match command.refusal:
            case TargetRefusal.OFFSET_MISMATCH:
                return self._restart(command.reason, attempts=again)
            case TargetRefusal.DIVERGED:
                return self._halt(FlowState.FAULTED, f"{command.reason}{self._way_out}")
            case TargetRefusal.UNACCEPTABLE:
                return self._halt(FlowState.FAULTED, command.reason)
            case TargetRefusal.STALE_LINK:
                return self._restart(command.reason, RefreshLink(), attempts=again)
            case TargetRefusal.ACTIVE:
                return self._hold(FlowState.PROMOTED, command.reason, RefreshLink(), role=LinkRole.TURNED)
            case TargetRefusal.CORRUPT:
                return self._corrupt(command.reason)
            case TargetRefusal.UNKNOWN_TOPIC:
                return self._restart(command.reason, RefreshMetadata(side=Side.TARGET), attempts=again)
            case _:
                assert_never(command.refusal)

    def _target_waiting(self, command: TargetWaiting, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        refresh = RefreshMetadata(side=Side.TARGET)
        if facts.state not in _RUNNING:
            return Decision(facts, (refresh,))
        new = facts._replace(state=FlowState.PREPARING, reason=command.reason)
        return Decision(new, (refresh,), command.reason)

    # What people and links want.

    def _link_turned(self, command: LinkTurned, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        match command.role:
            case LinkRole.TURNED:
                if facts.state is FlowState.PROMOTED:
                    return self._ignore()
                return self._hold(FlowState.PROMOTED, command.reason, role=LinkRole.TURNED)
            case LinkRole.GONE:
                if facts.role is LinkRole.GONE or facts.state is FlowState.PROMOTED:
                    return self._ignore()
                return self._hold(FlowState.PAUSED, command.reason, role=LinkRole.GONE)
            case LinkRole.MIRRORING | LinkRole.DRAINING:
                return self._link_mirrors(command)
            case _:
                assert_never(command.role)

    def _link_mirrors(self, command: LinkTurned) -> Decision:
        facts = self.facts
        if facts.state is FlowState.PROMOTED or facts.role is LinkRole.GONE:
            label = FlowState.REVERSING if facts.state is FlowState.PROMOTED else FlowState.PREPARING
            restarted = self._restart(command.reason, state=label)
            progress = facts.progress
            if label is FlowState.REVERSING:
                # What this site has got since, it got from its own clients and not through this
                # flow.
                progress = progress._replace(caught_up_at_ms=UNKNOWN, marker_offset=UNKNOWN, marker_at_ms=UNKNOWN)
            return replace(restarted, facts=restarted.facts._replace(role=command.role, progress=progress))
        if facts.role is command.role:
            return self._ignore()
        new = facts._replace(role=command.role)
        if facts.state in _RUNNING:
            label = FlowState.PROMOTING if command.role is LinkRole.DRAINING else FlowState.MIRRORING
            new = new._replace(state=label, reason=command.reason)
        return Decision(new, (), command.reason)

    def _pause(self, command: Pause, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if command.is_anothers and (facts.state not in _HELD or facts.is_chained):
            return self._hold(FlowState.PAUSED, command.reason)
        if facts.state in _HELD:
            return self._ignore()
        # Queued batches may still arrive: only fetching stops.
        new = self.facts._replace(state=FlowState.PAUSED, reason=command.reason, step=Step.IDLE)
        return Decision(new, (StopFetching(),), command.reason)

    def _resume(self, command: Resume, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.state is not FlowState.PAUSED or self.facts.role is LinkRole.GONE:
            return self._ignore()
        return self._restart("resumed", state=FlowState.PREPARING)

    def _topic_replaced(self, command: TopicReplaced, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.state is FlowState.PROMOTED:
            return self._ignore()
        if facts.state is FlowState.RESET:
            return Decision(facts._replace(reason=command.reason), (), command.reason)
        return self._hold(FlowState.RESET, command.reason)

    def _topic_refused(self, command: TopicRefused, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.state is FlowState.PROMOTED:
            return self._ignore()
        if facts.state is FlowState.REFUSED:
            return Decision(facts._replace(reason=command.reason), (), command.reason)
        held = self._hold(FlowState.REFUSED, command.reason)
        # There is no copy: what was known of an earlier one gives no lag.
        return replace(held, facts=held.facts._replace(progress=without_ends(facts.progress)))

    def _copy_renewed(self, command: CopyRenewed, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.state is FlowState.PROMOTED:
            return self._ignore()
        progress = without_ends(facts.progress)._replace(caught_up_at_ms=UNKNOWN)
        renewed = facts._replace(
            has_streamed=False, progress=progress, copy_began_ms=UNKNOWN, may_lack_tombstones=False
        )
        if facts.state is FlowState.PAUSED:
            return Decision(renewed)
        restarted = self._restart("the copy is created again", state=FlowState.PREPARING)
        return replace(
            restarted,
            facts=restarted.facts._replace(
                has_streamed=False,
                progress=progress,
                restart_offset=0,
                copy_began_ms=UNKNOWN,
                may_lack_tombstones=False,
            ),
        )

    def _topic_conflict(self, command: TopicConflict, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        is_known = facts.state is FlowState.FAULTED and facts.step is Step.IDLE
        if facts.state is FlowState.PROMOTED or is_known:
            return self._ignore()
        return self._hold(FlowState.FAULTED, command.reason)

    def _topic_hidden(self, command: TopicHidden, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        is_known = facts.state is FlowState.SOURCE_UNAVAILABLE and facts.step is Step.IDLE
        if facts.state in (FlowState.PAUSED, FlowState.PROMOTED) or is_known:
            return self._ignore()
        # Queued batches may still arrive, and may be all that is left.
        new = facts._replace(state=FlowState.SOURCE_UNAVAILABLE, reason=command.reason, step=Step.IDLE)
        return Decision(new, (StopFetching(),), command.reason)

    def _topic_agrees(self, command: TopicAgrees, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if not facts.waits_for_topic:
            return self._ignore()
        new = self._restart("both sites have the same topic again", state=FlowState.PREPARING)
        return replace(new, facts=new.facts._replace(has_streamed=False))


_RUNNING = frozenset({FlowState.MIRRORING, FlowState.PROMOTING})
_HELD = frozenset({FlowState.PAUSED, FlowState.PROMOTED, FlowState.RESET, FlowState.REFUSED})
_NEEDS_A_PERSON = frozenset({FlowState.GAP, FlowState.FAULTED})
_STICKY = _NEEDS_A_PERSON | {FlowState.SOURCE_UNAVAILABLE, FlowState.REVERSING}
