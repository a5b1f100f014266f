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
from dataclasses import replace
from typing import Any, assert_never

from mirror.flow.core.divergence import begins_within, find_divergence, promised_from, rereads_last_batch
from mirror.flow.core.flow_decisions import (
    HELD,
    NEEDS_A_PERSON,
    RUNNING,
    Decision,
    halt,
    hold,
    restart,
    running_label,
    wait,
)
from mirror.flow.core.flow_effects import (
    CheckSource,
    Fetch,
    FindTarget,
    QueueBatches,
    RefreshLink,
    RefreshMetadata,
    ReinstateCopy,
    RetryLater,
    Side,
    StopFetching,
)
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    ClockWentBack,
    Command,
    CopyBegins,
    CopyNotReinstated,
    CopyReinstated,
    FetchFailed,
    NotEnqueued,
    NothingFetched,
    RetryDue,
    Settled,
    SourceChecked,
    SourceLeaderChanged,
    SourceNotFound,
    SourceTrouble,
    Start,
    TargetDiffers,
    TargetFound,
    TargetNotFound,
    TargetRefusal,
    TargetWaiting,
    TombstonesKept,
)
from mirror.flow.core.flow_orders import ORDERS
from mirror.flow.core.flow_state import TRANSITIONS, FlowFacts, FlowState, Step
from mirror.flow.core.lag import moved, put_back, received
from mirror.flow.core.tombstones import tombstone_risk
from mirror.link.core.link_roles import GapPolicy, LinkRole
from runtime.invariants import InvariantBroken
from wire.protocol.ids import UNKNOWN

STORY_LENGTH = 16
SKIPPING = ", or with antipode.gap.policy=skip-and-record mirroring continues after them"
CORRUPT_ATTEMPTS_MAX = 3
"""Number of times that a flow fetches batches that failed their checksum at the target, before it
is FAULTED.
"""


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
            SourceLeaderChanged: self._source_leader_changed,
            TombstonesKept: self._tombstones_kept,
            ClockWentBack: self._clock_went_back,
        }

    def decide(self, command: Command, now_ms: int) -> Decision:
        """Decide a command; the state does not change yet."""
        generation = getattr(command, "generation", self.facts.generation)
        # late news of an earlier generation: what it asked for was dropped
        if generation != self.facts.generation:
            return Decision(self.facts)
        order = ORDERS.get(type(command))
        return self._deciders[type(command)](command, now_ms) if order is None else order(self.facts, command)

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
        if facts.state in RUNNING and facts.step is not Step.STREAMING:
            self._break(f"{facts.state.value} while {facts.step.value}")
        if facts.state in HELD and facts.step is not Step.IDLE:
            self._break(f"{facts.state.value} while {facts.step.value}")
        if facts.step is Step.STREAMING and not facts.is_chained:
            self._break("streaming without a chain")

    @property
    def story(self) -> tuple[str, ...]:
        """The last changes, oldest first."""
        return tuple(self._story)

    def _break(self, what: str) -> None:
        raise InvariantBroken(f"{self._name}: {what}; story: {' | '.join(self._story)}")

    # Starting, settling, waiting.

    def _start(self, command: Start, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        # a start that a worker asks for must not end what an operator or the topic holds
        if facts.role in (LinkRole.TURNED, LinkRole.GONE) or facts.state in HELD or facts.waits_for_topic:
            return Decision(self.facts)
        return restart(self.facts, command.reason)

    def _copy_begins(self, command: CopyBegins, now_ms: int) -> Decision:  # noqa: ARG002
        return Decision(self.facts._replace(begins_offset=command.offset))

    def _settled(self, command: Settled, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.SETTLING:
            return Decision(self.facts)
        if facts.attempts > 0:
            new = facts._replace(step=Step.WAITING)
            is_slow = facts.state in NEEDS_A_PERSON
            retry = RetryLater(generation=facts.generation, attempt=facts.attempts, is_slow=is_slow)
            return Decision(new, (retry,))
        return Decision(facts._replace(step=Step.FINDING_TARGET), (FindTarget(generation=facts.generation),))

    def _retry_due(self, command: RetryDue, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.WAITING:
            return Decision(self.facts)
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
            return Decision(self.facts)
        # below what it has acknowledged: the target is not the copy that it was
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
            return Decision(self.facts)
        state = FlowState.SOURCE_UNAVAILABLE if command.is_for_source else None
        return wait(self.facts, command.reason, RefreshMetadata(side=Side.TARGET), state=state)

    def _target_differs(self, command: TargetDiffers, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.FINDING_TARGET:
            return Decision(self.facts)
        return halt(self.facts, FlowState.FAULTED, command.reason)

    def _source_not_found(self, command: SourceNotFound, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.CHECKING_SOURCE:
            return Decision(self.facts)
        return wait(self.facts, command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE)

    def _source_checked(self, command: SourceChecked, now_ms: int) -> Decision:
        facts = self.facts
        if facts.step is not Step.CHECKING_SOURCE:
            return Decision(self.facts)
        divergence = find_divergence(facts, command)
        if divergence:
            return self._diverged(divergence)
        missing = max(0, command.log_start_offset - facts.chain_offset)
        expired = max(0, command.log_start_offset - promised_from(facts, command))
        progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
        # batches on their way deliver what the source has expired meanwhile
        is_in_hand = facts.is_chained and facts.progress.target_log_end_offset < facts.chain_offset
        if expired and self._gap_policy is GapPolicy.HALT:
            gap = (
                f"the source's log starts at {command.log_start_offset}, the mirror ends at {facts.chain_offset}: "
                f"{expired} offsets expired before they were mirrored{self._way_out}{SKIPPING if self._way_out else ''}"
            )
            halted = wait(self.facts, gap, state=FlowState.GAP) if is_in_hand else halt(self.facts, FlowState.GAP, gap)
            return replace(halted, facts=halted.facts._replace(progress=progress))
        if missing and is_in_hand:
            return wait(
                self.facts,
                f"the source's log starts at {command.log_start_offset}: batches fetched before that are delivered first",
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
            state=facts.state if is_in_doubt else running_label(self.facts),
            reason=facts.reason if is_in_doubt else reason,
            step=Step.STREAMING,
            is_chained=True,
            has_streamed=True,
            rereads_last_batch=rereads,
            # from the first batch ever: tombstones older than that are not expected here
            copy_began_ms=now_ms if is_new and facts.copy_began_ms == UNKNOWN else facts.copy_began_ms,
            is_resuming=facts.is_resuming or not facts.has_streamed,
            chain_offset=offset,
            # the records between are missing: no epoch can be compared across them
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
            return restart(self.facts, divergence)
        new = facts._replace(step=Step.REINSTATING, reason=divergence)
        return Decision(new, (ReinstateCopy(generation=facts.generation, reason=divergence),), divergence)

    def _copy_reinstated(self, command: CopyReinstated, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.REINSTATING:
            return Decision(self.facts)
        reason = f"the copy was truncated to offset {command.log_end_offset}; what it had alone is in quarantine"
        return restart(self.facts, reason, attempts=self.facts.attempts + 1)

    def _copy_not_reinstated(self, command: CopyNotReinstated, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.step is not Step.REINSTATING:
            return Decision(self.facts)
        reason = f"{facts.reason}; {command.advice}" if command.advice else f"{facts.reason}{self._way_out}"
        if not command.is_final:
            return restart(self.facts, reason, attempts=facts.attempts + 1)
        return halt(self.facts, FlowState.FAULTED, reason)

    def _source_leader_changed(self, command: SourceLeaderChanged, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        if facts.state is FlowState.PAUSED:
            return Decision(facts._replace(is_chained=False))
        if facts.step is not Step.STREAMING:
            return Decision(self.facts)
        # After an unclean election it may have other records where the chain ends, and more of
        # them.
        new = facts._replace(state=FlowState.PREPARING, reason=command.reason, step=Step.CHECKING_SOURCE)
        check = CheckSource(generation=facts.generation, epoch=facts.chain_epoch)
        return Decision(new, (StopFetching(), check), command.reason)

    # Streaming.

    def _batches_fetched(self, command: BatchesFetched, now_ms: int) -> Decision:
        facts = self.facts
        run = command.run
        # an answer to an earlier fetch, which a change of the chain has overtaken
        if facts.step is not Step.STREAMING or command.fetch_offset != facts.fetch_offset:
            return Decision(self.facts)
        is_within = begins_within(facts, run)
        may_begin_before = is_within or facts.rereads_last_batch
        if (run.first_offset < facts.chain_offset and not may_begin_before) or run.first_epoch < facts.chain_epoch:
            return halt(
                self.facts,
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
            return Decision(self.facts)
        progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
        is_complete = progress.target_log_end_offset >= facts.chain_offset
        # the batch that was to be compared did not come: it is gone at the source
        is_unanswered = facts.rereads_last_batch and command.high_watermark >= facts.chain_offset
        is_beyond_doubt = facts.state is FlowState.FAULTED and is_unanswered
        new = facts._replace(
            state=running_label(self.facts) if is_beyond_doubt else facts.state,
            reason="the source has compacted the last batch of the copy away" if is_beyond_doubt else facts.reason,
            source_log_start_offset=command.log_start_offset,
            progress=progress,
            attempts=0 if is_complete else facts.attempts,
        )
        return Decision(new)

    def _fetch_failed(self, command: FetchFailed, now_ms: int) -> Decision:  # noqa: ARG002
        if self.facts.step is not Step.STREAMING:
            return Decision(self.facts)
        match command.trouble:
            case SourceTrouble.UNREACHABLE:
                return wait(
                    self.facts, command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE
                )
            case SourceTrouble.MOVED:
                return wait(self.facts, command.reason, RefreshMetadata(side=Side.SOURCE))
            case SourceTrouble.OUT_OF_RANGE:
                # the check of the source finds out whether its log begins later or ends earlier
                return wait(self.facts, command.reason)
            case SourceTrouble.MALFORMED:
                return self._corrupt(command.reason)
            case _:
                assert_never(command.trouble)

    def _corrupt(self, reason: str) -> Decision:
        attempts = self.facts.attempts + 1
        # the same bytes may arrive whole the next time: only then is the source's copy damaged
        if attempts > CORRUPT_ATTEMPTS_MAX:
            return halt(self.facts, FlowState.FAULTED, reason)
        return restart(self.facts, reason, attempts=attempts)

    def _not_enqueued(self, command: NotEnqueued, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        rereads = command.rereads_last_batch
        is_same_end = command.offset == facts.chain_offset and rereads is facts.rereads_last_batch
        if not facts.is_chained or command.offset > facts.chain_offset or is_same_end:
            return Decision(self.facts)
        if facts.step is Step.CHECKING_SOURCE:
            # The answer would be about the end of the chain that it has no more.
            return restart(self.facts, "the queue stayed full during the check of the source")
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
            # answers may overtake each other: the higher end is the newer one
            target_log_end_offset=max(before.target_log_end_offset, command.log_end_offset),
            mirrored_bytes=before.mirrored_bytes + command.size_bytes,
            mirrored_records=before.mirrored_records + command.record_count,
            skipped_bytes=before.skipped_bytes + command.skipped_bytes,
            skipped_records=before.skipped_records + command.skipped_records,
            mirrored_timestamp_ms=max(before.mirrored_timestamp_ms, command.max_timestamp_ms),
        )
        if facts.step is not Step.STREAMING:
            return Decision(facts._replace(progress=progress))
        label = running_label(self.facts)
        reason = (
            facts.reason if facts.state is label else f"mirroring; the target acknowledged {command.log_end_offset}"
        )
        logged = "" if facts.state is label else reason
        return Decision(facts._replace(state=label, reason=reason, attempts=0, progress=progress), (), logged)

    def _append_refused(self, command: AppendRefused, now_ms: int) -> Decision:  # noqa: ARG002
        # a refusal of what was sent before the chain ended: the next start finds out
        if not self.facts.is_chained:
            return Decision(self.facts)
        if self.facts.state in HELD:
            return hold(self.facts, self.facts.state, self.facts.reason)
        again = self.facts.attempts + 1
        match command.refusal:
            case TargetRefusal.OFFSET_MISMATCH:
                return restart(self.facts, command.reason, attempts=again)
            case TargetRefusal.DIVERGED:
                return halt(self.facts, FlowState.FAULTED, f"{command.reason}{self._way_out}")
            case TargetRefusal.UNACCEPTABLE:
                return halt(self.facts, FlowState.FAULTED, command.reason)
            case TargetRefusal.STALE_LINK:
                return restart(self.facts, command.reason, RefreshLink(), attempts=again)
            case TargetRefusal.ACTIVE:
                return hold(self.facts, FlowState.PROMOTED, command.reason, RefreshLink(), role=LinkRole.TURNED)
            case TargetRefusal.CORRUPT:
                return self._corrupt(command.reason)
            case TargetRefusal.UNKNOWN_TOPIC:
                return restart(self.facts, command.reason, RefreshMetadata(side=Side.TARGET), attempts=again)
            case _:
                assert_never(command.refusal)

    def _target_waiting(self, command: TargetWaiting, now_ms: int) -> Decision:  # noqa: ARG002
        facts = self.facts
        refresh = RefreshMetadata(side=Side.TARGET)
        if facts.state not in RUNNING:
            return Decision(facts, (refresh,))
        new = facts._replace(state=FlowState.PREPARING, reason=command.reason)
        return Decision(new, (refresh,), command.reason)
