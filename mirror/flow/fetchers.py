"""Fetchers: one task for each source broker and stream; it sends one long-polling fetch after the
other and queues the batches.

The next fetch is sent as soon as an answer has been read, before its batches are queued, if the
queue has room for all of them; otherwise the fetcher first waits for room. So the source is kept
busy while the queue has space, and gets no fetches while the queue is full. While answers are
small, there is a pause between fetches, so that each brings more. Batches stay views into the
received answer.

Checksums are not verified here: the target verifies each batch before it appends, and a second pass
would cost 0.05 CPU seconds a GB for nothing. Only when the target refuses a batch is our copy
checked, to report which side damaged it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from clients.budget import QueueFull
from mirror.flow.board import FlowBoard
from mirror.flow.core.assignment import FetcherKey
from mirror.flow.core.flow_events import NotEnqueued, NothingFetched
from mirror.flow.core.flow_state import FlowFacts
from mirror.flow.core.window import QueuedBatches
from mirror.flow.fetch_answers import FetchAnswers, may_lack_records
from mirror.flow.late_fetches import LATE_FETCHES_MS_MAX, LATE_PARTITIONS_MAX, LateFetches
from mirror.flow.queue import ByteQueue
from mirror.flow.rows import QuietRounds
from mirror.flow.throttle import Throttle
from mirror.link.ports import FetchAnswer, FetchPart, FetchParts, FetchPort, Unreachable
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition

PAUSE_WHEN_FULL_S = 0.02
"""Pause of a fetcher that may not wait for room (`queue.enqueue.timeout.ms`), so that it does not
fetch in a tight loop.
"""

QUIET_INTERVAL_MS = 250
"""Interval (ms) at which flows without new batches learn that the source still answers."""

SMALL_ANSWER_BYTES = 256 * 1024
"""Smaller answers are those of a steady flow: without pauses, every record or two would take a
round trip of the whole path.
"""

LaneOf = Callable[[TopicPartition], int]


class Fetcher:
    """Reads its partitions from one source broker until cancelled."""

    def __init__(
        self,
        key: FetcherKey,
        *,
        board: FlowBoard,
        queue: ByteQueue,
        port: FetchPort,
        late_port: FetchPort,
        lane_of: LaneOf,
        throttle: Throttle,
        interval_ms: Callable[[], float],
        clock: Clock,
        is_resting: Callable[[], bool] = lambda: False,
    ) -> None:
        """`interval_ms` is the least time from one fetch to the next while answers are small.
        `late_port` is a second connection to the same broker (`late_fetches.py`). While
        `is_resting`, nothing is fetched, and answers do not count.
        """
        self._is_resting = is_resting
        self._throttle = throttle
        self._interval_ms = interval_ms
        self.key = key
        self._board = board
        self._queue = queue
        self._port = port
        self._late_port = late_port
        self._late = LateFetches(next_parts=self._late_parts, fetch=self._fetch_late)
        self._pending: asyncio.Task[Sequence[FetchAnswer]] | None = None
        self._is_brief = False
        self._lane_of = lane_of
        self._clock = clock
        self._quiet_reported_at_ms = 0.0
        self._quiet = QuietRounds(board.moment())
        # The parts as of the last look at the board, and the partitions about which something has
        # changed since; None: any of them.
        self._known_parts: dict[TopicPartition, FetchPart] = {}
        self._changed: set[TopicPartition] | None = None
        # The parts of the last request, and the partitions of which the next one may have other
        # parts; None: any of them.
        self._sent_parts: dict[TopicPartition, FetchPart] = {}
        self._unsent: set[TopicPartition] | None = None
        self._sent_at_ms = 0.0
        # The same by the wall clock.
        self._asked = board.moment()
        self._partitions: frozenset[TopicPartition] = frozenset()
        # Accepted by their flows and not queued yet.
        self._in_hand: set[TopicPartition] = set()
        # Those about which something has changed since the last request was sent.
        self._late_keys: set[TopicPartition] = set()
        self._fetch_answers = FetchAnswers(key.node_id, board=board, clock=clock, on_accepted=self._accepted)
        self._wake = asyncio.Event()
        self._expected_bytes = 0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that this fetcher reads."""
        return self._partitions

    def assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Read these partitions from the next fetch on."""
        for key in self._partitions - partitions:
            if self._board.row(key).quiet is self._quiet:
                self._board.end_quiet(key)
        self._partitions = partitions
        self.wake()

    def let_go(self) -> frozenset[TopicPartition]:
        """After `run` has ended, release the partitions with unqueued batches, so that other
        fetchers may read them. Their flows must start again.
        """
        lost = frozenset(self._in_hand)
        self._in_hand.clear()
        for key in lost:
            row = self._board.row(key)
            row.queueing = None if row.queueing is self else row.queueing
        return lost

    def wake(self, key: TopicPartition | None = None) -> None:
        """Something has changed about the partition, or about any (None)."""
        if key is None:
            self._changed = None
            self._late_keys.update(self._partitions - self._sent_parts.keys())
        else:
            self._look_again([key])
            self._late_keys.add(key)
        self._wake.set()
        if self._waits_at_source and len(self._late_keys) <= LATE_PARTITIONS_MAX:
            self._late.begin()

    def _look_again(self, keys: Iterable[TopicPartition]) -> None:
        if self._changed is not None:
            self._changed.update(keys)

    @property
    def _waits_at_source(self) -> bool:
        """True while a request may wait at the source for as long as `fetch.wait.max.ms`."""
        if self._pending is None or self._pending.done() or self._is_brief:
            return False
        return self._clock.monotonic_ms() - self._sent_at_ms < LATE_FETCHES_MS_MAX

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                if self._pending is None:
                    await self._rest()
                    await self._wait_for_parts()
                    await self._throttle.turn(self.key.rank, self._expected_bytes)
                    # The request is built again, because offsets may have changed during the
                    # throttle time.
                    if not self._parts():
                        # The throttle was charged for an answer that will not arrive.
                        self._throttle.spend(-self._expected_bytes)
                        continue
                    self._send()
                answers = await self._answers()
                self._late.check()
                accepted = self._fetch_answers.accept(self._sent_parts, answers or (), self._asked)
                self._account(answers or ())
                if answers is not None:
                    self._report_quiet(answers)
                # The next fetch follows the acceptance, which has moved its offsets.
                if self._parts() and self._may_fetch_ahead(sum(entry.size_bytes for entry, _ in accepted)):
                    self._send()
                await self._enqueue(accepted)
        # Without a reader the fetched bytes would be held until the connection closes.
        finally:
            if self._pending is not None:
                self._pending.cancel()
                await asyncio.gather(self._pending, return_exceptions=True)
            await self._late.stop()

    def _may_fetch_ahead(self, size_bytes: int) -> bool:
        rank = self.key.rank
        return (
            self._throttle_time_ms() <= 0
            and self._queue.has_room_for(size_bytes, rank)
            and self._throttle.wait_for_turn(rank, self._expected_bytes)
        )

    def _throttle_time_ms(self) -> float:
        """Return how long (ms) the fetcher waits before the next fetch, so that the fetch returns
        more. `_expected_bytes` is the size of the last response.
        """
        if self._expected_bytes >= SMALL_ANSWER_BYTES:
            return 0
        return self._interval_ms() - (self._clock.monotonic_ms() - self._sent_at_ms)

    async def _rest(self) -> None:
        throttle_time_ms = self._throttle_time_ms()
        if throttle_time_ms > 0:
            await asyncio.sleep(throttle_time_ms / 1000)

    def _account(self, answers: Sequence[FetchAnswer]) -> None:
        """Charge the difference between the fetched bytes and the expected bytes, which were
        charged when the request was sent; expect the next response to be alike.
        """
        fetched_bytes = sum(len(answer.records) for answer in answers)
        self._throttle.spend(fetched_bytes - self._expected_bytes)
        self._expected_bytes = fetched_bytes

    def _send(self) -> None:
        """Send a request for the parts as of the last look at the board. The parts of the request
        stay as they are until the next one, because its answers belong to them.
        """
        self._sent_at_ms, self._asked = self._clock.monotonic_ms(), self._board.moment()
        changed, self._unsent = self._unsent, set()
        if changed is None:
            self._sent_parts = self._known_parts.copy()
        else:
            for key in changed:
                _put(self._sent_parts, key, self._known_parts.get(key))
        self._late_keys.clear()
        # The request does not name the partitions of the late fetches, so the one after it, which
        # does, has to follow soon.
        self._is_brief = self._late.is_under_way
        self._pending = asyncio.get_running_loop().create_task(self._fetch(changed))

    async def _fetch(self, changed: Collection[TopicPartition] | None) -> Sequence[FetchAnswer]:
        return await self._port.fetch(self.key.node_id, self._sent_parts, changed=changed, is_brief=self._is_brief)

    async def _wait_for_parts(self) -> None:
        while not self._parts():
            self._wake.clear()
            await self._wake.wait()

    def _parts(self) -> FetchParts:
        """The parts of the next fetch. Of thousands of partitions, only those are looked at about
        which something has changed.
        """
        if self._is_resting():
            return {}
        changed, self._changed = self._changed, set()
        if changed is None:
            self._known_parts = {key: part for key in self._partitions if (part := self._part(key)) is not None}
            self._unsent = None
        else:
            for key in changed:
                _put(self._known_parts, key, self._part(key) if key in self._partitions else None)
            if self._unsent is not None:
                self._unsent |= changed
        return self._known_parts

    def _part(self, key: TopicPartition) -> FetchPart | None:
        row = self._board.row(key)
        # The batches of the previous reader must be queued first, otherwise the order within the
        # partition is lost.
        if row.wanted is None or row.queueing not in (None, self) or self._late.has(key):
            return None
        generation, offset = row.wanted
        return FetchPart(topic_id=row.topic_id, offset=offset, leader_epoch=row.source.epoch, generation=generation)

    async def _answers(self) -> Sequence[FetchAnswer] | None:
        """The answers; None if they do not count, or if none came, which the flows know then."""
        assert self._pending is not None, "no fetch was sent"
        try:
            answers = await self._pending
            # This site has become active; the flows may not know it yet.
            return None if self._is_resting() else answers
        except Unreachable as error:
            if not self._is_resting():
                self._fetch_answers.none_came(self._sent_parts, str(error))
            return None
        finally:
            self._pending = None

    def _late_parts(self) -> FetchParts:
        """The partitions that the waiting request does not name, or under an older generation;
        without those of which earlier batches are not queued yet.
        """
        if not self._waits_at_source or len(self._late_keys) > LATE_PARTITIONS_MAX:
            return {}
        sent, parts = self._sent_parts, self._parts()
        late = {key: parts[key] for key in self._late_keys if key in parts and key not in self._in_hand}
        return {key: part for key, part in late.items() if key not in sent or sent[key].generation != part.generation}

    async def _fetch_late(self, parts: FetchParts) -> bool:
        """One brief fetch. False if it must wait for the next request of the fetcher."""
        self._look_again(parts)
        try:
            return await self._queue_late(parts)
        except Unreachable:
            # The next request names the partitions, and reports if the broker does not answer.
            return False
        finally:
            self._wake.set()
            self._look_again(parts)

    async def _queue_late(self, parts: FetchParts) -> bool:
        rank = self.key.rank
        if not self._queue.has_room_for(1, rank) or not self._throttle.wait_for_turn(rank, 0):
            return False
        asked = self._board.moment()
        answers = await self._late_port.fetch(self.key.node_id, parts, is_brief=True)
        fetched_bytes = sum(len(answer.records) for answer in answers)
        self._throttle.spend(fetched_bytes)
        if self._is_resting():
            return False
        await self._enqueue(self._fetch_answers.accept(parts, answers, asked))
        if 0 < fetched_bytes < SMALL_ANSWER_BYTES:
            await asyncio.sleep(self._interval_ms() / 1000)
        return True

    def _report_quiet(self, answers: Sequence[FetchAnswer]) -> None:
        """A fetch session (KIP-227) leaves out unchanged partitions, so this reports to their flows
        at intervals that the source has answered.
        """
        self._quiet.asked, self._quiet.answered = self._asked, self._board.moment()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._quiet_reported_at_ms < QUIET_INTERVAL_MS:
            return
        self._quiet_reported_at_ms = now_ms
        answered = {answer.key for answer in answers}
        may_have_more = may_lack_records(answers)
        for key in self._sent_parts.keys() - self._board.quiet_of(self._quiet):
            # In a fetch session unchanged partitions are missing from the answer, so a missing
            # partition is no event here.
            if key not in answered and key in self._board:
                facts = self._board.row(key).facts
                nothing = NothingFetched(
                    generation=self._sent_parts[key].generation,
                    high_watermark=facts.progress.source_high_watermark,
                    log_start_offset=facts.source_log_start_offset,
                    asked_at_ms=self._board.as_of(self._asked),
                    may_have_more=may_have_more,
                )
                self._board.submit(key, nothing)
                if key in self._partitions:
                    self._board.begin_quiet(key, self._quiet)

    async def close(self) -> None:
        """Drop the connections."""
        await self._port.close()
        await self._late_port.close()

    def _accepted(self, key: TopicPartition) -> None:
        self._board.row(key).queueing = self
        self._in_hand.add(key)

    async def _enqueue(self, accepted: Sequence[tuple[QueuedBatches, FlowFacts]]) -> None:
        """Put the batches of an answer into the queue, together where they fit: the producer then
        sends one request for many partitions, and not many for a few. After an interruption,
        `let_go` releases them.
        """
        size_bytes = sum(entry.size_bytes for entry, _ in accepted)
        if accepted and self._queue.takes_together(size_bytes, self.key.rank):
            await self._put(accepted)
        else:
            for one in accepted:
                await self._put([one])

    async def _put(self, accepted: Sequence[tuple[QueuedBatches, FlowFacts]]) -> None:
        try:
            await self._queue.put([(self._lane_of(entry.key), entry) for entry, _ in accepted], self.key.rank)
        except QueueFull:
            for entry, before in accepted:
                # The facts from before the acceptance: the chain continues at the offset where
                # these batches would have been queued.
                again = NotEnqueued(
                    generation=entry.generation,
                    offset=before.chain_offset,
                    epoch=before.chain_epoch,
                    restart_offset=before.restart_offset,
                    rereads_last_batch=before.rereads_last_batch,
                )
                self._board.submit(entry.key, again)
            await asyncio.sleep(PAUSE_WHEN_FULL_S)
        for entry, _ in accepted:
            self._has_queued(entry.key)

    def _has_queued(self, key: TopicPartition) -> None:
        """Note that the batches are queued: another reader of the partition may continue."""
        self._in_hand.discard(key)
        self._look_again([key])
        row = self._board.row(key)
        if row.queueing is self:
            row.queueing = None
            if key not in self._partitions:
                self._board.look_again(key)


def _put(parts: dict[TopicPartition, FetchPart], key: TopicPartition, part: FetchPart | None) -> None:
    """Set the partition's part; None removes it."""
    if part is None:
        parts.pop(key, None)
    else:
        parts[key] = part
