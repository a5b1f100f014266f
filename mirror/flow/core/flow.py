"""One partition's flow from source to target: decides what to ask, fetch and queue, and when to
start again.

`decide(command, now_ms)` changes nothing; `apply(facts)` is the only change of state. The state is
only in memory: after a crash the flow continues at the target's log end (invariant M1: the target
is always a prefix of the source).

  a. A generation starts with settling: nothing older is queued or in flight when the target is
     asked for its end.
  b. Before a batch is fetched, the source's leader confirms that it has the target's last epoch up
     to the target's end.
  c. Batches are queued in one chain: each starts where the target's log must end before it.
  d. When the source is lost, or its log begins later than before, fetched batches are still
  delivered; when the target is lost, they stay queued. Only a refusal, a dead worker or a changed
  role starts a new generation.
  e. A missing, recreated, refused or diverged history is a state with a reason (GAP, RESET,
     REFUSED, FAULTED), never skipped silently (M9). A diverged copy becomes a prefix again where
     the link has such copies reinstated.
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from msgspec.structs import replace

from mirror.flow.core import flow_orders, flow_positions, flow_streaming
from mirror.flow.core.flow_decisions import HELD, RUNNING, Decision, FlowOptions
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    ClockWentBack,
    Command,
    CopyBegins,
    CopyNotReinstated,
    CopyReinstated,
    CopyRenewed,
    FetchFailed,
    LinkTurned,
    NotEnqueued,
    NothingFetched,
    Order,
    Pause,
    PositionCommand,
    Resume,
    RetryDue,
    Settled,
    SourceChecked,
    SourceLeaderChanged,
    SourceNotFound,
    Start,
    TargetDiffers,
    TargetFound,
    TargetNotFound,
    TargetWaiting,
    TombstonesKept,
    TopicAgrees,
    TopicConflict,
    TopicHidden,
    TopicRefused,
    TopicReplaced,
)
from mirror.flow.core.flow_state import TRANSITIONS, FlowFacts, Step
from mirror.link.core.link_roles import GapPolicy
from runtime.invariants import InvariantBroken

STORY_LENGTH = 16


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
        """`way_out` is the advice to a person who wants a new copy; it ends reasons that need it.
        `target_compares`: the target compares a batch that it has with one that is sent again.
        """
        self._name = name
        advice = f"; {way_out}" if way_out else ""
        self._options = FlowOptions(gap_policy=gap_policy, way_out=advice, target_compares=target_compares)
        facts = FlowFacts()
        self.facts = replace(facts, progress=replace(facts.progress, started_at_ms=started_at_ms))
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    def decide(self, command: Command, now_ms: int) -> Decision:
        """Decide a command; the state does not change yet."""
        facts = self.facts
        # orders have no generation: they are never late
        generation = getattr(command, "generation", facts.generation)
        # This is a late answer to a request of an earlier generation.
        if generation != facts.generation:
            return Decision(facts)
        # The commands of every batch come first, because Python tries the cases in order.
        match command:
            case BatchesFetched():
                return flow_streaming.batches_fetched(facts, command, now_ms=now_ms, options=self._options)
            case Acknowledged():
                return flow_streaming.acknowledged(facts, command)
            case NothingFetched():
                return flow_streaming.nothing_fetched(facts, command, now_ms=now_ms)
            case SourceLeaderChanged():
                return flow_streaming.source_leader_changed(facts, command)
            case TombstonesKept():
                return flow_streaming.tombstones_kept(facts, command)
            case ClockWentBack():
                return flow_streaming.clock_went_back(facts, command)
            case FetchFailed():
                return flow_streaming.fetch_failed(facts, command)
            case NotEnqueued():
                return flow_streaming.not_enqueued(facts, command)
            case AppendRefused():
                return flow_streaming.append_refused(facts, command, options=self._options)
            case TargetWaiting():
                return flow_streaming.target_waiting(facts, command)
            case _:
                return self._decide_position(command, now_ms)

    def _decide_position(self, command: PositionCommand | Order, now_ms: int) -> Decision:
        facts = self.facts
        match command:
            case Start():
                return flow_positions.start(facts, command)
            case Settled():
                return flow_positions.settled(facts)
            case RetryDue():
                return flow_positions.retry_due(facts)
            case CopyBegins():
                return flow_positions.copy_begins(facts, command)
            case TargetFound():
                return flow_positions.target_found(facts, command)
            case TargetNotFound():
                return flow_positions.target_not_found(facts, command)
            case TargetDiffers():
                return flow_positions.target_differs(facts, command)
            case SourceNotFound():
                return flow_positions.source_not_found(facts, command)
            case SourceChecked():
                return flow_positions.source_checked(facts, command, now_ms=now_ms, options=self._options)
            case CopyReinstated():
                return flow_positions.copy_reinstated(facts, command)
            case CopyNotReinstated():
                return flow_positions.copy_not_reinstated(facts, command, options=self._options)
            case _:
                return self._decide_order(command)

    def _decide_order(self, command: Order) -> Decision:
        facts = self.facts
        match command:
            case LinkTurned():
                return flow_orders.link_turned(facts, command)
            case Pause():
                return flow_orders.pause(facts, command)
            case Resume():
                return flow_orders.resume(facts)
            case TopicReplaced():
                return flow_orders.topic_replaced(facts, command)
            case TopicConflict():
                return flow_orders.topic_conflict(facts, command)
            case TopicHidden():
                return flow_orders.topic_hidden(facts, command)
            case TopicRefused():
                return flow_orders.topic_refused(facts, command)
            case CopyRenewed():
                return flow_orders.copy_renewed(facts)
            case TopicAgrees():
                return flow_orders.topic_agrees(facts)
            case _:
                assert_never(command)

    def apply(self, facts: FlowFacts) -> None:
        """Apply the facts of a decision. Raises InvariantBroken if they cannot follow the current
        ones.
        """
        before = self.facts
        if facts is before:
            return
        if facts.state is not before.state and facts.state not in TRANSITIONS[before.state]:
            self._break(f"{before.state.value} may not become {facts.state.value} ({facts.reason})")
        if facts.generation < before.generation:
            self._break(f"generation goes back from {before.generation} to {facts.generation}")
        # progress changes with every batch, and would push the useful entries out of the story
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
