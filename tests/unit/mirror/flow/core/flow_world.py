"""One partition's flow and send window in a small world: a source that appends under growing
leader epochs, a target that follows the table of MirrorAppend, a queue, and a network that loses
connections with requests half processed. Each step is drawn at random.
"""

from __future__ import annotations

import random
from collections import deque

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_effects import (
    CheckSource,
    Discard,
    Effect,
    Fetch,
    FindTarget,
    QueueBatches,
    RetryLater,
    StopFetching,
)
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    Command,
    CopyBegins,
    FetchFailed,
    NotEnqueued,
    NothingFetched,
    RetryDue,
    Settled,
    SourceChecked,
    SourceNotFound,
    SourceTrouble,
    Start,
    TargetFound,
    TargetNotFound,
    TargetRefusal,
    TargetWaiting,
)
from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.flow.core.window import QueuedBatches, SendWindow
from mirror.link.core.partitions import BatchRun
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
Batch = tuple[int, int, int]  # first offset, next offset, leader epoch


class World:
    """The flow with everything around it; `chance` decides what happens."""

    def __init__(self, chance: random.Random, *, begins_offset: int = 0) -> None:
        self.chance = chance
        self.flow = Flow("orders-0")
        self.window = SendWindow()
        self.now_ms = 0
        self.source: list[Batch] = []
        self.begins_offset = self.source_start = begins_offset
        self.epoch = 0
        self.target: list[Batch] = []
        self.target_start = 0
        self.is_source_up = True
        self.is_target_up = True
        self.is_target_active = False
        self.wanted: tuple[int, int] | None = None
        self.asked: deque[tuple[int, int]] = deque()
        self.queue: deque[QueuedBatches] = deque()
        self.in_flight: deque[QueuedBatches] = deque()
        self.pending: list[Effect] = []
        self.retry: RetryDue | None = None
        self.queued_bytes = 0
        # How often the queue has no room.
        self.full_share = 0.1

    # The parts of the world.

    @property
    def source_end(self) -> int:
        return self.source[-1][1] if self.source else self.source_start

    @property
    def target_end(self) -> int:
        return self.target[-1][1] if self.target else self.target_start

    def submit(self, command: Command) -> None:
        self.now_ms += 1
        decision = self.flow.decide(command, self.now_ms)
        self.flow.apply(decision.facts)
        self.flow.check_invariants()
        for effect in decision.effects:
            match effect:
                case Fetch(generation=generation, offset=offset):
                    self.wanted = (generation, offset)
                case StopFetching():
                    self.wanted = None
                case Discard(generation=generation):
                    self.queued_bytes -= self.window.discard(generation)
                    self.pending.append(effect)
                case FindTarget() | CheckSource():
                    self.pending.append(effect)
                case RetryLater(generation=generation):
                    self.retry = RetryDue(generation=generation)
                case _:
                    pass

    # The events that may happen.

    def produce(self) -> None:
        if self.chance.random() < 0.2:
            self.epoch += 1
        hole = self.chance.choice((0, 0, 0, 2))
        first = self.source_end + hole
        self.source.append((first, first + self.chance.randint(1, 5), self.epoch))

    def answer_question(self) -> None:
        if not self.pending:
            return
        effect = self.pending.pop(self.chance.randrange(len(self.pending)))
        match effect:
            case Discard():
                self.settle()
            case FindTarget(generation=generation):
                if not self.is_target_up:
                    self.submit(TargetNotFound(generation=generation, reason="down"))
                    return
                last_epoch = self.target[-1][2] if self.target else -1
                self.submit(
                    TargetFound(
                        generation=generation,
                        log_start_offset=self.target_start,
                        log_end_offset=self.target_end,
                        last_epoch=last_epoch,
                    )
                )
            case CheckSource(generation=generation, epoch=epoch):
                if not self.is_source_up:
                    self.submit(SourceNotFound(generation=generation, reason="down"))
                    return
                known = [batch for batch in self.source if batch[2] <= epoch]
                above = [batch for batch in self.source if batch[2] > epoch]
                found = known[-1][2] if known else -1
                end = above[0][0] if above else self.source_end
                self.submit(
                    SourceChecked(
                        generation=generation,
                        log_start_offset=self.source_start,
                        high_watermark=self.source_end,
                        epoch=found if epoch >= 0 else -1,
                        epoch_end_offset=end if found >= 0 else -1,
                    )
                )

    def ask(self) -> None:
        """A fetch is sent; two may be under way, as when a partition changes its fetcher."""
        if self.wanted is not None and len(self.asked) < 2:
            self.asked.append(self.wanted)

    def fetch(self) -> None:
        """A fetch is answered."""
        if not self.asked:
            return
        generation, offset = self.asked.popleft()
        if not self.is_source_up:
            trouble = self.chance.choice((SourceTrouble.UNREACHABLE, SourceTrouble.MOVED))
            self.submit(FetchFailed(generation=generation, trouble=trouble, reason="down"))
            return
        if not self.source_start <= offset <= self.source_end:
            failed = FetchFailed(generation=generation, trouble=SourceTrouble.OUT_OF_RANGE, reason="out of range")
            self.submit(failed)
            return
        batches = [batch for batch in self.source if batch[1] > offset][: self.chance.randint(1, 3)]
        ends = {"high_watermark": self.source_end, "log_start_offset": self.source_start}
        if not batches:
            self.submit(NothingFetched(generation=generation, **ends))
            return
        run = BatchRun(
            first_offset=batches[0][0],
            next_offset=batches[-1][1],
            size_bytes=10 * len(batches),
            record_count=len(batches),
            first_epoch=batches[0][2],
            last_epoch=batches[-1][2],
            max_timestamp_ms=-1,
        )
        before = self.flow.facts
        command = BatchesFetched(generation=generation, fetch_offset=offset, run=run, **ends)
        effects = self.flow.decide(command, self.now_ms).effects
        self.submit(command)
        for effect in effects:
            if isinstance(effect, QueueBatches):
                self.enqueue(run, before, expected=effect.expected_log_end_offset)

    def enqueue(self, run: BatchRun, before: FlowFacts, *, expected: int) -> None:
        generation = before.generation
        if self.chance.random() < self.full_share:
            again = NotEnqueued(
                generation=generation,
                offset=before.chain_offset,
                epoch=before.chain_epoch,
                restart_offset=before.restart_offset,
                rereads_last_batch=before.rereads_last_batch,
            )
            self.submit(again)
            return
        entry = QueuedBatches(
            key=KEY, generation=generation, expected_log_end_offset=expected, run=run, records=memoryview(b"")
        )
        self.queued_bytes += entry.size_bytes
        self.queue.append(entry)

    def pull(self) -> None:
        if self.queue:
            entry = self.queue.popleft()
            if not self.window.push(entry):
                self.queued_bytes -= entry.size_bytes

    def send(self) -> None:
        entry = self.window.next_to_send()
        if entry is None:
            return
        self.window.mark_sent()
        self.in_flight.append(entry)

    def deliver(self) -> None:
        """The target answers the oldest request."""
        if not self.in_flight:
            return
        entry = self.in_flight.popleft()
        if not self.is_target_up:
            self.in_flight.appendleft(entry)
            self.break_connection()
            return
        problem = self.append(entry)
        if problem is None:
            for done in self.window.acknowledge(entry, self.target_end):
                self.queued_bytes -= done.size_bytes
                self.submit(
                    Acknowledged(
                        generation=done.generation, log_end_offset=done.run.next_offset, size_bytes=done.size_bytes
                    )
                )
        elif problem is TargetRefusal.OFFSET_MISMATCH and self.window.follows_a_failure(entry):
            self.window.fail(entry)
            self.submit(TargetWaiting(generation=entry.generation, reason="the target refused earlier batches"))
        else:
            self.window.fail(entry)
            self.submit(AppendRefused(generation=entry.generation, refusal=problem, reason=problem.value))
        self.settle()

    def append(self, entry: QueuedBatches) -> TargetRefusal | None:
        """The target takes or refuses a MirrorAppend."""
        if self.is_target_active:
            return TargetRefusal.ACTIVE
        sent = [b for b in self.source if entry.run.first_offset <= b[0] and b[1] <= entry.run.next_offset]
        if any(batch not in self.target for batch in sent if self.target_start <= batch[0] < self.target_end):
            return TargetRefusal.DIVERGED
        if entry.run.next_offset <= self.target_end:
            return None
        if entry.expected_log_end_offset > self.target_end:
            if not self.target and entry.expected_log_end_offset == self.flow.facts.restart_offset:
                self.target_start = entry.expected_log_end_offset
            else:
                return TargetRefusal.OFFSET_MISMATCH
        fresh = [batch for batch in sent if batch[0] >= self.target_end]
        if fresh and self.target and fresh[0][2] < self.target[-1][2]:
            return TargetRefusal.DIVERGED
        self.target += fresh
        return None

    def break_connection(self) -> None:
        """Requests in flight: a prefix is processed, and no answer is sent."""
        processed = self.chance.randint(0, len(self.in_flight)) if self.is_target_up else 0
        for position, entry in enumerate(list(self.in_flight)):
            if position < processed:
                self.append(entry)
            self.window.fail(entry)
            self.submit(TargetWaiting(generation=entry.generation, reason="connection lost"))
        self.in_flight.clear()
        self.settle()

    def settle(self) -> None:
        freed = self.window.settle()
        if freed is not None:
            self.queued_bytes -= freed
            self.submit(Settled(generation=self.window.generation))

    def report(self) -> None:
        """An idle partition's empty append finds out that the target has lost records that it had
        acknowledged.
        """
        is_idle = self.window.is_idle and not self.queue and self.flow.facts.step is Step.STREAMING
        if is_idle and self.is_target_up and self.target_end < self.flow.facts.progress.target_log_end_offset:
            refusal = TargetRefusal.OFFSET_MISMATCH
            generation = self.flow.facts.generation
            self.submit(AppendRefused(generation=generation, refusal=refusal, reason="the target lost its end"))

    def start(self) -> None:
        self.submit(CopyBegins(offset=self.begins_offset))
        self.submit(Start())

    def fire_timer(self) -> None:
        if self.retry is not None:
            due, self.retry = self.retry, None
            self.submit(due)

    def check(self) -> None:
        """M1, at every moment; and bytes are accounted exactly."""
        kept = [batch for batch in self.source if batch[0] >= self.target_start]
        assert self.target == kept[: len(self.target)]
        assert self.flow.facts.state not in (FlowState.FAULTED, FlowState.RESET), self.flow.story
        assert self.queued_bytes == sum(entry.size_bytes for entry in self.queue) + self.window.kept_bytes
