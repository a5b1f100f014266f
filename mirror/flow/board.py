"""All partitions of the link with their flows and their leaders. The board applies a flow's
decision and carries out its effects.

The board is the only caller of `Flow.decide` and `Flow.apply`. Workers (prober, fetchers,
producers, syncs) submit commands and get effects through the `Effects` door; nothing here awaits,
so a flow's decision is still valid when its effects run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_decisions import Decision
from mirror.flow.core.flow_effects import Effects, OnBroken, OnTransition
from mirror.flow.core.flow_events import ClockWentBack, Command, TopicReplaced
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.lag import Lag, Progress, complete_until_ms, measure, received
from mirror.flow.effect_acts import EffectActs, StateLines
from mirror.flow.rows import NO_LEADER, Moment, QuietRounds, RetiredRows, Row
from mirror.link.core.link_roles import GapPolicy, LinkRole
from runtime.clock import Clock
from runtime.invariants import InvariantBroken
from runtime.logs import get_logger
from wire.protocol.ids import UNKNOWN, TopicPartition

NO_LAG = Lag(records=0, bytes=0, ms=0)

CLOCK_STEP_MS = 100
"""Smaller backward steps are ignored: they are within the precision of a lag."""

_log = get_logger("mirror.flow")


class FlowBoard:
    """Partitions by key. One event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        effects: Effects,
        gap_policy: GapPolicy,
        stale_after_ms: int,
        chance: random.Random,
        way_out_of: Callable[[str], str],
        target_compares: bool = True,
        on_broken: OnBroken = lambda _: None,
        on_transition: OnTransition = lambda *_: None,
    ) -> None:
        """`way_out_of` returns the advice how a person can have a topic copied again.
        `target_compares`: the target compares a repeated batch with its own.
        """
        self._target_compares = target_compares
        self._way_out_of = way_out_of
        self._clock = clock
        self._effects = effects
        self._gap_policy = gap_policy
        self._stale_after_ms = stale_after_ms
        self._acts = EffectActs(effects, chance, self.submit)
        self._rows: dict[TopicPartition, Row] = {}
        self._retired = RetiredRows(self._rows, clock)
        self._restless: set[TopicPartition] = set()
        # Without a regular check either: this site is active, and only a change of the role can
        # change anything about them.
        self._promoted: set[TopicPartition] = set()
        self._settled: TopicPartition | None = None
        # The partitions of each fetcher's quiet rounds.
        self._quiet: dict[QuietRounds, set[TopicPartition]] = {}
        self.moved_bytes = 0  # of all partitions
        # The partitions that are in no session of reports.
        self._alone: set[TopicPartition] = set()
        # The difference between the wall clock and the monotonic clock that flows use for their
        # times.
        self._clock_ahead_ms = clock.now_ms() - clock.monotonic_ms()
        self._on_broken = on_broken
        self._on_transition = on_transition
        self._lines = StateLines()

    def __iter__(self) -> Iterator[TopicPartition]:
        return (key for key, _ in self.rows())

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return sum(1 for _ in self.rows())

    def our_rows(self) -> list[tuple[TopicPartition, Row]]:
        """The partitions that this daemon mirrors."""
        return [(key, row) for key, row in self.rows() if row.is_ours]

    def rows(self) -> Iterator[tuple[TopicPartition, Row]]:
        """All partitions that are at a site; a copy, because another thread reads metrics."""
        return ((key, row) for key, row in tuple(self._rows.items()) if not row.is_retired)

    def restless_rows(self) -> list[tuple[TopicPartition, Row]]:
        """The partitions at which regular checks must look. All others are `promoted_rows`, or are
        MIRRORING, and at the last answer of their source the target had all its records. Any thread
        may call this.
        """
        return self._shown(self._restless)

    def promoted_rows(self) -> list[tuple[TopicPartition, Row]]:
        """The partitions of this daemon whose mirroring has ended because this site is active."""
        return self._shown(self._promoted)

    def _shown(self, keys: AbstractSet[TopicPartition]) -> list[tuple[TopicPartition, Row]]:
        return list(self._each_shown(keys))

    def _each_shown(self, keys: AbstractSet[TopicPartition]) -> Iterator[tuple[TopicPartition, Row]]:
        # a copy, and rows may be gone: the metrics call this in another thread
        rows = ((key, self._rows.get(key)) for key in tuple(keys))
        return ((key, row) for key, row in rows if row is not None and not row.is_retired)

    def rows_to_turn(self, role: LinkRole) -> list[tuple[TopicPartition, Row]]:
        """The partitions that must learn of this role. A settled one carries on under a fence as
        before it, and learns of the fence only if it has something to decide.
        """
        match role:
            case LinkRole.MIRRORING | LinkRole.DRAINING:
                return [*self.restless_rows(), *self.promoted_rows()]
            case LinkRole.TURNED:
                others = ((key, self._rows[key]) for key in self._rows.keys() - self._promoted)
                return [(key, row) for key, row in others if not row.is_retired]
            case _:
                return list(self.rows())

    def give_up(self, key: TopicPartition) -> None:
        """Another daemon mirrors the partition from here on."""
        self._rows[key].is_ours = False
        self._promoted.discard(key)
        self._restless.add(key)

    def row(self, key: TopicPartition) -> Row:
        """One partition; KeyError when it is not on the board."""
        return self._rows[key]

    def add(self, key: TopicPartition, topic_id: UUID) -> Row:
        """The partition's row; a new one if there is none."""
        row = self._rows.get(key)
        if row is None:
            flow = Flow(
                str(key),
                gap_policy=self._gap_policy,
                started_at_ms=self._clock.now_ms(),
                way_out=self._way_out_of(key.topic),
                target_compares=self._target_compares,
            )
            row = self._rows[key] = Row(flow, topic_id)
            self._restless.add(key)
            self._alone.add(key)
        return row

    def retire(self, key: TopicPartition, reason: str) -> None:
        """Stop mirroring and showing a partition whose topic is at neither site; `topic_sync` adds
        it again when the topic returns.
        """
        self._rows[key].is_retired = True
        self._retired.note(key)
        self.submit(key, TopicReplaced(reason=reason))

    def forget_retired(self, may_forget: Callable[[TopicPartition], bool]) -> None:
        """Remove the rows of partitions that were retired long ago, where `may_forget`."""
        for key in self._retired.take_unused(may_forget):
            del self._rows[key]
            for keys in (self._restless, self._promoted, self._alone):
                keys.discard(key)
            self._settled = None if self._settled == key else self._settled

    def submit(self, key: TopicPartition, command: Command) -> Decision:
        """Decide, apply, act. Raises KeyError if the board does not have the partition."""
        row = self._rows[key]
        if row.quiet is not None:
            self.end_quiet(key)
        before = row.flow.facts
        try:
            decision = row.flow.decide(command, self._now_ms())
            row.flow.apply(decision.facts)
        except InvariantBroken as error:
            # The state of the flow is unreliable, so the process ends. After its restart the flow
            # begins at the target's log end.
            self._on_broken(error)
            raise
        after = row.flow.facts
        self.moved_bytes += max(0, after.progress.moved_bytes - before.progress.moved_bytes)
        if FlowState.PROMOTED in (before.state, after.state):
            self._note_promoted(key, row)
        if before.state is not after.state:
            self._lines.write(key, before.state, after)
            self._on_transition(key, before.state, after.state, after.reason)
        elif decision.reason and decision.reason != before.reason:
            _log.debug(decision.reason, partition=str(key), state=after.state.value, generation=after.generation)
        for effect in decision.effects:
            self._acts.carry_out(key, row, effect)
        return decision

    def _note_promoted(self, key: TopicPartition, row: Row) -> None:
        facts = row.facts
        # The others wait for something that a regular check finds.
        is_idle = facts.state is FlowState.PROMOTED and not facts.waits_for_topic and not facts.is_chained
        if is_idle and row.is_ours and row.target != NO_LEADER:
            self._promoted.add(key)
            self._restless.discard(key)
        else:
            self._promoted.discard(key)
            self._restless.add(key)

    def begin_quiet(self, key: TopicPartition, rounds: QuietRounds) -> bool:
        """Count these rounds as answers of the source about this partition. False if its flow has
        something to decide.
        """
        row = self._rows[key]
        if row.facts.state is not FlowState.MIRRORING or row.facts.attempts:
            return False
        row.quiet = rounds
        self._quiet.setdefault(rounds, set()).add(key)
        if row.facts.progress.has_all:
            self._restless.discard(key)
            self._settled = key
        return True

    def alone(self) -> list[TopicPartition]:
        """The partitions that are in no session of reports."""
        return [key for key in self._alone if not self._rows[key].is_retired]

    def enter_session(self, key: TopicPartition, leave: Callable[[TopicPartition], None]) -> None:
        """The partition is in a session of reports, until `leave_session`; the next command of its
        flow calls `leave`.
        """
        self._rows[key].leave_session = leave
        self._alone.discard(key)

    def leave_session(self, key: TopicPartition) -> None:
        """The partition is in no session of reports."""
        self._rows[key].leave_session = None
        self._alone.add(key)

    def quiet_of(self, rounds: QuietRounds) -> AbstractSet[TopicPartition]:
        """The partitions of these rounds."""
        return self._quiet.get(rounds, frozenset())

    def silent(self, *, for_ms: float) -> list[TopicPartition]:
        """The partitions in quiet rounds whose source has not answered for this time."""
        now_ms = self._noted_now_ms()
        return [
            key
            for rounds, keys in self._quiet.items()
            if now_ms - self._noted_at(rounds.answered) >= for_ms
            for key in keys
        ]

    def is_settled(self, key: TopicPartition) -> bool:
        """True for the partitions that are MIRRORING and that `restless_rows` leaves out."""
        return key not in self._restless and key not in self._promoted and not self._rows[key].is_retired

    def examples(self) -> list[Row]:
        """One of the settled partitions and one of the promoted ones, if there are any: all others
        that `restless_rows` leaves out are in the state of one of them.
        """
        if self._settled is None or not self.is_settled(self._settled):
            # a resting mirror has none, and is asked every second
            has_some = len(self._restless) + len(self._promoted) < len(self._rows)
            self._settled = next((key for key, _ in self.rows() if self.is_settled(key)), None) if has_some else None
        settled = [] if self._settled is None else [self._rows[self._settled]]
        return [*settled, *(row for _, row in islice(self._each_shown(self._promoted), 1))]

    def end_quiet(self, key: TopicPartition) -> None:
        """Submit the result of the quiet rounds to the flow, before its next decision."""
        row = self._rows[key]
        row.flow.apply(replace(row.facts, progress=self._progress(row)))
        if row.quiet is not None:
            left = self._quiet[row.quiet]
            left.discard(key)
            if not left:
                del self._quiet[row.quiet]
        row.quiet = None
        self._restless.add(key)
        if row.leave_session is not None:
            row.leave_session(key)

    def _progress(self, row: Row) -> Progress:
        """The current ends of the partition; the metrics call this in another thread."""
        rounds, progress = row.quiet, row.facts.progress
        if rounds is None:
            return progress
        answered_at_ms = self._noted_at(rounds.answered)
        if answered_at_ms <= progress.source_answered_at_ms:
            return progress
        return received(progress, progress.source_high_watermark, self._noted_at(rounds.asked), answered_at_ms)

    def _noted_at(self, moment: Moment) -> int:
        """The moment on the clock of the flows: the earlier of both readings, because an answer
        lacks records that arrived after its request.
        """
        return min(moment.at_ms, round(moment.monotonic_ms + self._clock_ahead_ms))

    def look_again(self, key: TopicPartition) -> None:
        """Let the partition's fetcher check what to fetch."""
        self._effects.fetching_changed(key)

    def lag(self, key: TopicPartition) -> Lag:
        """The partition's current lag; unknown where mirroring has ended because this site is
        active.
        """
        row = self._rows[key]
        if row.facts.state is FlowState.PROMOTED:
            return Lag(records=UNKNOWN, bytes=UNKNOWN, ms=UNKNOWN)
        progress = row.facts.progress
        # A shortcut for most partitions at most calls: the same result as `measure`, without a new
        # progress value.
        if row.quiet is not None and progress.has_all and self.silence_ms(key) <= self._stale_after_ms:
            return NO_LAG
        return measure(self._progress(row), now_ms=self._noted_now_ms(), stale_after_ms=self._stale_after_ms)

    def moment(self) -> Moment:
        """The current time, for a request whose answer goes to flows."""
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def as_of(self, moment: Moment) -> int:
        """The moment on the clock that flows use now. After a clock step the result may be too
        early but not too late, because a response does not contain records that reached the source
        after the request.
        """
        self._now_ms()
        return self._noted_at(moment)

    def complete_ms_ago(self, key: TopicPartition) -> int | None:
        """The age (ms) of the last moment up to which the target has all of the source's records;
        None if unknown.
        """
        until_ms = complete_until_ms(self._progress(self._rows[key]))
        if self._rows[key].facts.state is FlowState.PROMOTED or until_ms == UNKNOWN:
            return None
        return max(0, self._noted_now_ms() - until_ms)

    def is_stalled(self, key: TopicPartition) -> bool:
        """True while the partition is not mirrored, or its source does not answer: earlier
        measurements are outdated then.
        """
        state = self._rows[key].facts.state
        return state not in (FlowState.MIRRORING, FlowState.PROMOTING) or self.silence_ms(key) > self._stale_after_ms

    def silence_ms(self, key: TopicPartition) -> int:
        """Milliseconds since the source last answered for the partition."""
        return self._noted_now_ms() - self.source_answered_at_ms(key)

    def source_answered_at_ms(self, key: TopicPartition) -> int:
        """Unix time (ms, by the flows' clock) of the source's last answer for the partition."""
        row = self._rows[key]
        known_ms = row.facts.progress.source_answered_at_ms
        return known_ms if row.quiet is None else max(known_ms, self._noted_at(row.quiet.answered))

    def answered_at_ms(self, rounds: QuietRounds) -> int:
        """Unix time (ms, by the flows' clock) of the source's last answer in these rounds."""
        return self._noted_at(rounds.answered)

    def stop_timers(self) -> None:
        """Stop all retry timers."""
        for row in self._rows.values():
            if row.retry is not None:
                row.retry.cancel()

    def _now_ms(self) -> int:
        """The machine's time. When the clock goes back, the flows' times are shifted too: otherwise
        nothing would be late until it has caught up. When it jumps forward they stay: the machine
        may have been paused, and that time has passed.
        """
        now_ms = self._clock.now_ms()
        ahead_ms = now_ms - self._clock.monotonic_ms()
        by_ms = round(self._clock_ahead_ms - ahead_ms)
        if by_ms >= CLOCK_STEP_MS:
            for row in self._rows.values():
                row.flow.apply(row.flow.decide(ClockWentBack(by_ms=by_ms), now_ms).facts)
        # The clock is ahead, or went back by a real step; smaller steps are within the precision of
        # a lag.
        if by_ms >= CLOCK_STEP_MS or by_ms < 0:
            self._clock_ahead_ms = ahead_ms
        return now_ms

    def _noted_now_ms(self) -> int:
        """The current time on the clock that the flows use; also for metrics, which another thread
        reads.
        """
        return max(self._clock.now_ms(), round(self._clock.monotonic_ms() + self._clock_ahead_ms))

    def lines_together(self) -> AbstractContextManager[None]:
        """Write lines about changes of state together; await nothing inside."""
        return self._lines.together()
