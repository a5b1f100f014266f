"""The two pools: fetchers by source broker and producers by lane, kept running and up to date with
the board.

A failed fetcher or producer is replaced by a new one with new connections, and all its partitions
restart from the target's log end, so nothing need remember the lost batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from clients.core.slots import stable_slot
from mirror.flow.board import FlowBoard
from mirror.flow.core.assignment import FetcherKey, assign_fetchers
from mirror.flow.core.flow_events import Start
from mirror.flow.core.window import QueuedBatches
from mirror.flow.fetchers import Fetcher
from mirror.flow.producers import Producer
from runtime.supervision import Supervisor
from wire.protocol.ids import TopicPartition

FETCHER = "fetcher"
PRODUCER = "producer"


class WorkerReplaced(Exception):
    """A running worker that does nothing is ended and replaced."""


class _Interruptible:
    """Runs workers until they end, or one is interrupted."""

    def __init__(self) -> None:
        self._interruptions: dict[object, asyncio.Future[None]] = {}

    async def serve(self, name: object, work: Coroutine[Any, Any, None]) -> None:
        """Do the work. Raises WorkerReplaced if the worker is interrupted in the meantime."""
        interruption = self._interruptions[name] = asyncio.get_running_loop().create_future()
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait((working, interruption), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                interruption.result()
            await working
        finally:
            # also if this task itself was cancelled: nothing else ends the work
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            del self._interruptions[name]

    def interrupt(self, name: object, reason: str) -> None:
        """End the work, if it is under way."""
        interruption = self._interruptions.get(name)
        if interruption is not None and not interruption.done():
            interruption.set_exception(WorkerReplaced(reason))


class FetcherPool:
    """Fetchers for all source brokers that lead something."""

    def __init__(
        self,
        board: FlowBoard,
        supervisor: Supervisor,
        *,
        streams_per_broker: int,
        make: Callable[[FetcherKey], Fetcher],
    ) -> None:
        self._board = board
        self._supervisor = supervisor
        self._streams_per_broker = streams_per_broker
        self._make = make
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._reader_of: dict[TopicPartition, FetcherKey] = {}
        self._interruptions = _Interruptible()
        self._is_closed = False

    def __iter__(self) -> Iterator[Fetcher]:
        return iter(self._fetchers.values())

    def reassign(self) -> None:
        """Give each partition to the fetcher of its current leader. Does nothing once the pool is
        closed; queued batches are still delivered then.
        """
        if self._is_closed:
            return
        leaders = {key: row.source.node_id for key, row in self._board.rows()}
        ranks = {key: row.rank for key, row in self._board.rows()}
        assignment = assign_fetchers(leaders, streams_per_broker=self._streams_per_broker, ranks=ranks)
        self._reader_of = {key: fetcher for fetcher, keys in assignment.items() for key in keys}
        for fetcher_key in assignment.keys() - self._fetchers.keys():
            self._start(fetcher_key)
        # also fetchers that got no partitions: they must drop the ones that they had
        for fetcher_key, fetcher in self._fetchers.items():
            fetcher.assign(assignment.get(fetcher_key, frozenset()))

    def wake(self, key: TopicPartition) -> None:
        """The partition must be fetched from another offset."""
        reader = self._reader_of.get(key)
        if reader is not None:
            self._fetchers[reader].wake(key)

    def replace(self, key: TopicPartition, reason: str) -> None:
        """Replace the partition's fetcher by a new one with new connections."""
        self._interruptions.interrupt(self._reader_of.get(key), reason)

    async def close(self) -> None:
        """End all fetchers and their connections."""
        # set first: a change of leaders during the stop must not start a fetcher
        self._is_closed = True
        await self._supervisor.stop(FETCHER)
        for fetcher in self._fetchers.values():
            await fetcher.close()

    def _start(self, fetcher_key: FetcherKey) -> None:
        self._fetchers[fetcher_key] = self._make(fetcher_key)

        async def run() -> None:
            await self._interruptions.serve(fetcher_key, self._fetchers[fetcher_key].run())

        async def replace(reason: str) -> None:
            dead = self._fetchers[fetcher_key]
            fetcher = self._fetchers[fetcher_key] = self._make(fetcher_key)
            fetcher.assign(dead.partitions)
            # Its partitions may have been given to another fetcher in the meantime.
            lost = dead.partitions | dead.let_go()
            try:
                await dead.close()
            finally:
                for key in lost:
                    self._board.submit(key, Start(reason))

        name = f"{FETCHER} {fetcher_key.node_id}/{fetcher_key.stream}/{fetcher_key.rank}"
        self._supervisor.start(name, run, kind=FETCHER, on_death=replace)


class ProducerPool:
    """A fixed number of producers; a partition's producer never changes."""

    def __init__(
        self, board: FlowBoard, supervisor: Supervisor, *, producers: int, make: Callable[[int], Producer]
    ) -> None:
        self._board = board
        self._supervisor = supervisor
        self._make = make
        self._producers = [make(lane) for lane in range(producers)]
        # Cached, because every partition is looked up several times a second.
        self._lanes: dict[TopicPartition, int] = {}
        self._interruptions = _Interruptible()

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers)

    def lane_of(self, key: TopicPartition) -> int:
        """The partition's producer, by number."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = stable_slot(key, len(self._producers))
        return lane

    def forget(self, key: TopicPartition) -> bool:
        """Forget a deleted partition; False while something of it is kept or in flight."""
        if not self._producers[self.lane_of(key)].forget(key):
            return False
        del self._lanes[key]
        return True

    def start(self) -> None:
        """Start all."""
        for lane in range(len(self._producers)):
            self._start(lane)

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Have the partition's producer drop what is older."""
        self._producers[self.lane_of(key)].discard(key, generation)

    def wake(self) -> None:
        """Look for leaders again, because they may have moved."""
        for producer in self._producers:
            producer.wake()

    def replace(self, key: TopicPartition, reason: str) -> None:
        """Replace the partition's producer by a new one with new connections."""
        self._interruptions.interrupt(self.lane_of(key), reason)

    def report(self) -> None:
        """Report the source's ends to the target for the partitions that have nothing to send."""
        if not any(producer.has_reports for producer in self._producers):
            return
        by_lane: list[list[TopicPartition]] = [[] for _ in self._producers]
        for key in self._board.alone():
            by_lane[self.lane_of(key)].append(key)
        for producer, keys in zip(self._producers, by_lane, strict=True):
            producer.report(keys)

    @property
    def batches(self) -> list[QueuedBatches]:
        """The batches that producers took from the queue and the target has not acknowledged, each
        partition's oldest first.
        """
        return [entry for producer in tuple(self._producers) for entry in producer.batches]

    @property
    def unacknowledged(self) -> int:
        """Partitions with something unsent or unanswered."""
        return sum(producer.unacknowledged for producer in self._producers)

    async def close(self) -> None:
        """End all producers and their connections."""
        await self._supervisor.stop(PRODUCER)
        for producer in self._producers:
            await producer.abandon()
            await producer.close()

    def _start(self, lane: int) -> None:
        async def run() -> None:
            await self._interruptions.serve(lane, self._producers[lane].run())

        async def replace(reason: str) -> None:
            dead = self._producers[lane]
            await dead.abandon()
            await dead.close()
            self._producers[lane] = self._make(lane)
            for key in list(self._board):
                if self.lane_of(key) == lane:
                    self._board.submit(key, Start(reason))

        self._supervisor.start(f"{PRODUCER} {lane}", run, kind=PRODUCER, on_death=replace)
