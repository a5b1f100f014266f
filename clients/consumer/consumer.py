"""The poll loop of the modern consumer, over raw batches: subscription, group membership,
positions, prefetch, commits.

`poll` does due work (join a group again, commit) and returns what has been prefetched; fetching
goes on between two polls, bounded in bytes. A rebalance happens inside `poll`, so records of
earlier polls count as processed when offsets are committed for it. There are three ways to choose
partitions: topics or a pattern, distributed in the group, or partitions by hand.

Chunks are raw batches; `records` opens them, at the edge. One task may poll at a time; `wakeup` may
be called from anywhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

from clients.consumer.consumer_options import CommitRefused, ConsumerOptions, QuietListener, RebalanceListener
from clients.consumer.generations import Generations
from clients.consumer.offset_commits import OffsetCommits
from clients.consumer.prefetch import Prefetch
from clients.consumer.topic_subscription import TopicSubscription
from clients.reader.core.opening import records_in
from clients.reader.core.positions import Position
from clients.reader.core.readings import Start
from clients.reader.reader import Reader
from clients.reader.reader_options import Chunk
from runtime.clock import Clock, SystemClock
from runtime.logs import get_logger
from runtime.supervision import Supervisor
from wire.batches.record_batch import InvalidBatch
from wire.batches.records import Record
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import READ_COMMITTED, PartitionKey

_log = get_logger("clients.consumer.consumer")


class WokenUp(Exception):
    """`wakeup` was called; nothing is lost, poll again."""


class NothingSubscribed(Exception):
    """The consumer has nothing to poll: neither topics nor partitions have been named."""


class AlreadyPolling(Exception):
    """Another task is inside of `poll`."""


class Consumer:
    """Use as `async with Consumer(...) as consumer`. `new_client` makes clients of the cluster; the
    consumer closes them.
    """

    def __init__(
        self, new_client: Callable[[], KafkaClient], options: ConsumerOptions | None = None, clock: Clock | None = None
    ) -> None:
        self.options = options or ConsumerOptions()
        self._clock = clock or SystemClock()
        self._client, self._group_client = new_client(), new_client()
        self._fetch_clients = [new_client() for _ in range(self.options.reader.fetchers)]
        self._prefetch = Prefetch(self.options.prefetch_bytes, self._is_current)
        self.reader = Reader(
            self._client,
            self._fetch_clients,
            self._prefetch,
            self.options.reader,
            self._clock,
            name=self.options.group_instance_id or self.options.group_id or "consumer",
        )
        self.reader.on_failure = lambda _: self._prefetch.news.set()
        self._subscription = TopicSubscription(self._client, self.options, self._note_problem)
        self._is_manual = False
        self._listener: RebalanceListener = QuietListener()
        self.interceptors: list[Callable[[Sequence[Chunk]], Sequence[Chunk]]] = []
        self._loops = Supervisor()
        self._commits = OffsetCommits(self._group_client, self.options)
        self._generations = Generations(
            self._group_client,
            self.options,
            self._clock,
            subscription=self._subscription,
            commits=self._commits,
            on_news=self._prefetch.news.set,
            on_problem=self._note_problem,
        )
        self._commit_due_ms = self._clock.monotonic_ms() + self.options.auto_commit_interval_ms
        self._is_woken = False
        self._is_polling = False
        self._is_closed = False
        self._is_watching = False
        self.last_problem = ""

    async def __aenter__(self) -> Self:
        self.reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the consumer reads

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Share these topics, or all whose whole name matches a pattern, with the other members of
        the group.
        """
        if self.options.group_id is None:
            raise ValueError("a subscription needs a group id; partitions can be assigned without one")
        self._subscription.replace(topics)
        self._listener = listener or QuietListener()
        self._is_manual = False
        self._generations.needs_join = True
        if not self._is_watching:
            self._is_watching = True
            self._loops.start("topics of a subscription", lambda: self._subscription.watch(self._generations.join_soon))

    def assign(self, starts: Mapping[PartitionKey, Start]) -> None:
        """Read these partitions from these positions on, without the group."""
        self._is_manual = True
        self.reader.end(set(self.reader.readings.places) - set(starts))
        self.reader.begin(starts)
        self._prefetch.clean()

    @property
    def assignment(self) -> frozenset[PartitionKey]:
        """The partitions that the consumer reads now."""
        return frozenset(self.reader.readings.places)

    @property
    def is_assigned(self) -> bool:
        """True if partitions were assigned by hand, or while the consumer is a member of the group
        with an assignment.
        """
        return self._is_manual or (self._generations.membership is not None and self._generations.joining is None)

    def positions(self) -> Mapping[PartitionKey, Position]:
        """The position behind the records that `poll` has returned, for partitions where it is
        known.
        """
        return self.reader.readings.positions()

    def lag(self, place: PartitionKey) -> int:
        """Records between the position and the last reported end of the log; -1 while unknown."""
        reading = self.reader.readings.get(place)
        return -1 if reading is None else reading.lag

    def seek(self, place: PartitionKey, start: Start) -> None:
        """Continue at another position; prefetched records of the partition are dropped."""
        if place not in self.reader.readings:
            raise ValueError(f"{place[0]}-{place[1]} is not assigned: accepted are {sorted(self.assignment)}")
        self.reader.begin({place: start})
        self._prefetch.clean()

    def pause(self, places: Iterable[PartitionKey]) -> None:
        """Return no records of these partitions until they are resumed; prefetched ones are fetched
        again then.
        """
        self.reader.pause(places)
        self._prefetch.clean()

    def resume(self, places: Iterable[PartitionKey]) -> None:
        """Go on with these."""
        self.reader.resume(places)

    @property
    def pending_commits(self) -> int:
        """Commits in the background that no poll has reported yet."""
        return self._commits.pending

    # Polling

    def wakeup(self) -> None:
        """End the current `poll`, or the next, with WokenUp."""
        self._is_woken = True
        self._prefetch.news.set()

    async def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Raw batches, as soon as there are some; none when the time is over. WokenUp.

        Raises PositionLost, DamagedLog or BrokerError for a partition, again in later polls while
        the cause exists.
        """
        if self._is_polling:
            raise AlreadyPolling("one task polls at a time")
        if not self._is_manual and self._subscription.is_empty:
            raise NothingSubscribed("call subscribe or assign before poll")
        self._is_polling = True
        try:
            return await self._poll(self._clock.monotonic_ms() + timeout_ms)
        finally:
            self._is_polling = False

    async def _poll(self, deadline_ms: float) -> Sequence[Chunk]:
        self._commit_if_due()
        while True:
            self._prefetch.news.clear()
            if self._is_woken:
                self._is_woken = False
                raise WokenUp
            if self.reader.failure is not None:
                raise self.reader.failure
            self._commits.run_callbacks()
            if not self._is_manual:
                await self._coordinate()
            chunks: Sequence[Chunk] = self._take()
            if chunks:
                for intercept in self.interceptors:
                    chunks = intercept(chunks)
                return chunks
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return []
            try:
                async with asyncio.timeout(self._generations.wait_ms(left_ms) / 1000):
                    await self._prefetch.news.wait()
            except TimeoutError:
                continue

    async def records(self, *, timeout_ms: float) -> AsyncIterator[tuple[PartitionKey, Record]]:
        """Single records, decoded here; the iteration ends after this time without a record."""
        while chunks := await self.poll(timeout_ms):
            for number, chunk in enumerate(chunks):
                try:
                    for record in self.opened(chunk):
                        yield chunk.place, record
                except InvalidBatch:
                    for later in chunks[number + 1 :]:
                        self._go_back(later, later.position)
                    raise

    def opened(self, chunk: Chunk) -> Iterator[Record]:
        """The records of a chunk; by `isolation_level` without those of aborted transactions.

        Raises InvalidBatch for a damaged batch. The position is then where the damage begins: polls
        return it again until the application seeks past it.
        """
        at = chunk.position
        try:
            for record in records_in(
                chunk.records,
                first_offset=chunk.position.offset,
                end_offset=chunk.next.offset,
                aborted=chunk.aborted,
                is_committed_only=self.options.reader.isolation_level == READ_COMMITTED,
            ):
                at = Position(record.offset + 1)
                yield record
        except InvalidBatch:
            self._go_back(chunk, at)
            raise

    def _go_back(self, chunk: Chunk, position: Position) -> None:
        """Read again from a position inside a chunk that `poll` has returned, unless the partition
        is now read from another position.
        """
        if self.reader.readings.current(chunk.place, chunk.generation) is not None:
            self.seek(chunk.place, Start(position))

    def _take(self) -> list[Chunk]:
        taken: list[Chunk] = []
        count = 0
        while count < self.options.poll_records_max and (chunk := self._prefetch.first()) is not None:
            if chunk.problem is not None:
                if taken:
                    break
                self._prefetch.drop_first()
                self.reader.retry(chunk.place)
                raise chunk.problem
            reading = self.reader.readings.current(chunk.place, chunk.generation)
            assert reading is not None, "only current chunks are taken"
            chunk = self._prefetch.take_first(self.options.poll_records_max - count)
            reading.consumed = chunk.next
            taken.append(chunk)
            count += chunk.record_count
        return taken

    def _is_current(self, chunk: Chunk) -> bool:
        reading = self.reader.readings.current(chunk.place, chunk.generation)
        if reading is None or reading.is_paused:
            return False
        return chunk.problem is not None or chunk.position.offset >= reading.consumed.offset

    # The group

    async def _coordinate(self) -> None:
        generations = self._generations
        if generations.is_expelled:
            generations.is_expelled = False
            lost = self._drop_assignment()
            await self._listener.lost(lost)
        if generations.joining is not None:
            if generations.joining.done() and (starts := await generations.take_joined()) is not None:
                self.reader.begin(starts)
                await self._listener.assigned(frozenset(starts))
        elif generations.is_join_due:
            generations.needs_join = False
            try:
                await self._give_back()
            finally:
                # any error of the application's listener: a member that does not rejoin must not
                # continue to read
                self._drop_assignment()
                generations.begin_join()

    async def _give_back(self) -> None:
        """Commit the returned records and notify the application before a new generation."""
        if self._generations.membership is None:
            return
        self._generations.stop_heartbeats()
        if self.options.is_auto_commit:
            try:
                await self.commit()
            except (CommitRefused, KafkaClientError) as error:
                _log.info("offsets could not be committed before a rebalance", reason=str(error))
        await self._listener.revoked(self.assignment)

    def _drop_assignment(self) -> frozenset[PartitionKey]:
        places = self.assignment
        self._generations.membership = None
        self.reader.end(places)
        self._prefetch.clean()
        return places

    def _note_problem(self, problem: str) -> None:
        self.last_problem = problem

    # Offsets

    async def commit(self, offsets: Mapping[PartitionKey, Position] | None = None) -> None:
        """Commit these offsets, or the offsets of the records that `poll` has returned, and wait
        for the result. CommitRefused; KafkaClientError.
        """
        taken = self.positions() if offsets is None else offsets
        await self._commits.commit(dict(taken), self._generations.membership)

    def commit_soon(
        self,
        offsets: Mapping[PartitionKey, Position] | None = None,
        done: Callable[[Exception | None], None] = lambda _: None,
    ) -> None:
        """Commit in the background, commits one after the other; `done` is called in a later
        `poll`.
        """
        taken = dict(self.positions() if offsets is None else offsets)
        self._commits.commit_soon(taken, self._generations.membership, done)

    def _commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._commit_due_ms or not self._may_auto_commit():
            return
        self._commit_due_ms = now_ms + self.options.auto_commit_interval_ms
        self.commit_soon(done=self._note_auto_commit)

    def _may_auto_commit(self) -> bool:
        is_member = self._is_manual or self._generations.membership is not None
        return is_member and self.options.group_id is not None and self.options.is_auto_commit

    def _note_auto_commit(self, error: Exception | None) -> None:
        if error is not None:
            self.last_problem = str(error)

    async def close(self) -> None:
        """Commit what was returned (with auto commit), leave the group, end everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(self.options.close_timeout_ms / 1000):
                await self._commits.wait()
                if self._may_auto_commit():
                    await self.commit()
                if self._generations.membership is not None:
                    await self._listener.revoked(self.assignment)
        except (TimeoutError, CommitRefused, KafkaClientError) as error:
            _log.info("offsets could not be committed while closing", reason=str(error) or "timed out")
        await self._loops.stop()
        await self._generations.stop()
        if self.options.group_id is not None and not self._is_manual:
            await self._generations.leave()
        await self.reader.close()
        for client in (self._client, *self._fetch_clients, self._group_client):
            await client.close()
