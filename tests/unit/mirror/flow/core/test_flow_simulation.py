"""One partition's flow and send window in a small world that does its worst; the target must stay a
prefix of the source (M1).

The world has a source that appends under growing leader epochs and expires its head, a target that
follows the table of MirrorAppend, a queue and a network that loses connections with requests half
processed. Each step is drawn at random. At the end all faults are healed and the target must have
everything.
"""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    LinkTurned,
    NotEnqueued,
    NothingFetched,
    Pause,
    Resume,
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
from mirror.link.core.link_roles import LinkRole
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

    def producer_dies(self) -> None:
        """Its successor knows nothing; the flow starts again from the target's log end."""
        self.in_flight.clear()
        self.queue.clear()
        self.queued_bytes = 0
        self.window = SendWindow()
        self.window.generation = self.flow.facts.generation
        self.pending = [effect for effect in self.pending if not isinstance(effect, Discard)]
        self.submit(Start("a worker died"))

    def mirror_dies(self) -> None:
        """A new process."""
        self.flow = Flow("orders-0")
        self.window = SendWindow()
        self.in_flight.clear()
        self.asked.clear()
        self.queue.clear()
        self.queued_bytes = 0
        self.pending.clear()
        self.retry = None
        self.wanted = None
        self.start()

    def start(self) -> None:
        self.submit(CopyBegins(offset=self.begins_offset))
        self.submit(Start())

    def fire_timer(self) -> None:
        if self.retry is not None:
            due, self.retry = self.retry, None
            self.submit(due)

    def target_loses_its_tail(self) -> None:
        if self.target:
            self.break_connection()
            del self.target[-1]

    def toggle_source(self) -> None:
        self.is_source_up = not self.is_source_up

    def toggle_target(self) -> None:
        self.is_target_up = not self.is_target_up
        if not self.is_target_up:
            self.break_connection()

    def source_comes_back(self) -> None:
        self.is_source_up = True

    def target_comes_back(self) -> None:
        self.is_target_up = True

    def pause(self) -> None:
        self.submit(Pause(reason="by hand"))

    def resume(self) -> None:
        self.submit(Resume())

    def drain_begins(self) -> None:
        self.submit(LinkTurned(role=LinkRole.DRAINING, reason="fenced"))

    def drain_ends(self) -> None:
        self.submit(LinkTurned(role=LinkRole.MIRRORING, reason="unfenced"))

    def check(self) -> None:
        """M1, at every moment; and bytes are accounted exactly."""
        kept = [batch for batch in self.source if batch[0] >= self.target_start]
        assert self.target == kept[: len(self.target)]
        assert self.flow.facts.state not in (FlowState.FAULTED, FlowState.RESET), self.flow.story
        assert self.queued_bytes == sum(entry.size_bytes for entry in self.queue) + self.window.kept_bytes


WORK = ("answer_question", "ask", "fetch", "pull", "send", "deliver", "fire_timer", "report")
FAULTLESS = ("produce", *WORK, *WORK)
REPAIRS = ("resume", "source_comes_back", "target_comes_back")
FAULTS = (
    "break_connection",
    "producer_dies",
    "mirror_dies",
    "target_loses_its_tail",
    "toggle_source",
    "toggle_target",
    "pause",
    "resume",
    "drain_begins",
    "drain_ends",
)


def run_steps(world: World, steps: int) -> None:
    for _ in range(steps):
        draw = world.chance.random()
        names = FAULTS if draw < 0.02 else REPAIRS if draw < 0.08 else FAULTLESS
        getattr(world, world.chance.choice(names))()
        world.check()


def heal(world: World) -> None:
    """No more faults: everything must arrive in a bounded number of steps."""
    world.is_source_up = world.is_target_up = True
    world.is_target_active = False
    world.resume()
    for _ in range(400 + 40 * len(world.source)):
        for name in WORK:
            getattr(world, name)()
            world.check()
        is_running = world.flow.facts.state in (FlowState.MIRRORING, FlowState.PROMOTING)
        if is_running and world.target_end == world.source_end and not world.queue and world.window.is_idle:
            return


SEEDS = st.integers(min_value=0, max_value=1 << 32)
BEGINNINGS = st.sampled_from((0, 7))


@given(seed=SEEDS, begins_offset=BEGINNINGS)
def test_target_is_always_a_prefix_and_catches_up_after_any_faults(seed: int, begins_offset: int) -> None:
    world = World(random.Random(seed), begins_offset=begins_offset)
    world.start()
    run_steps(world, 1000)
    heal(world)
    assert world.target_end == world.source_end, (seed, world.flow.facts, world.flow.story)
    assert world.flow.facts.state in (FlowState.MIRRORING, FlowState.PROMOTING), (seed, world.flow.story)


@given(seed=SEEDS)
def test_a_first_batch_across_the_source_s_log_start_is_fetched_until_it_finds_room(seed: int) -> None:
    world = World(random.Random(seed), begins_offset=7)
    world.source = [(4, 9, 0)]
    world.full_share = 0.6
    world.start()
    for _ in range(300):
        getattr(world, world.chance.choice(FAULTLESS))()
        world.check()
        assert world.flow.facts.state is not FlowState.GAP, world.flow.story
    heal(world)
    assert world.target == world.source, world.flow.story


@given(seed=SEEDS, begins_offset=BEGINNINGS, is_begun=st.booleans(), is_restarted=st.booleans())
def test_expired_records_are_a_gap_and_never_skipped_in_silence(
    seed: int, begins_offset: int, is_begun: bool, is_restarted: bool
) -> None:
    world = World(random.Random(seed), begins_offset=begins_offset)
    world.start()
    if is_begun:
        run_steps(world, 300)
        heal(world)
    end = world.target_end if world.target else begins_offset
    world.is_source_up = False
    for _ in range(3):
        world.ask()
        world.fetch()
        world.produce()
    world.source_start = world.source[-1][0]
    world.source = world.source[-1:]
    if world.source_start <= end:
        return
    if is_restarted:
        world.mirror_dies()
    before = list(world.target)
    world.check = lambda: None  # type: ignore[method-assign]
    heal(world)
    assert world.flow.facts.state is FlowState.GAP, world.flow.story
    assert f"{world.source_start - end} offsets expired" in world.flow.facts.reason
    assert world.target == before


@pytest.mark.parametrize("seed", range(20))
def test_a_promoted_target_is_never_written(seed: int) -> None:
    world = World(random.Random(seed))
    world.start()
    run_steps(world, 300)
    world.is_target_active = True
    before = list(world.target)
    run_steps_without_losing_the_tail(world, 200)
    assert world.target == before


def run_steps_without_losing_the_tail(world: World, steps: int) -> None:
    for _ in range(steps):
        getattr(world, world.chance.choice((*FAULTLESS, "break_connection", "toggle_source", "mirror_dies")))()
        world.check()
