"""The partitions of an internal topic that this broker leads, each with a shard.

A shard is loaded when this broker becomes leader and dropped when it loses the leadership. A shard
whose append failed is also dropped and replayed, because it is unknown whether the append is in the
log. Called by the group and the transaction coordinator, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, Generic, TypeVar

from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal, InternalLog, StateShard
from broker.replication.hosted_partition import PartitionFailure
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import Supervisor, in_background, note_death
from wire.batches.record_batch import InvalidBatch

log = get_logger(__name__)
state_change = state_change_logger()

LOADS_AT_ONCE_MAX: Final = 4  # a replay decodes records, and the event loop also serves clients
RELOAD_DELAY_MS: Final = 500  # by then, a moving leadership is known

ShardT = TypeVar("ShardT", bound=StateShard[Any, Any, Any])


class ShardLeadership(Generic[ShardT]):
    """The shards of the partitions that this broker leads. `make(partition, leader_epoch)` creates
    a shard; its failures are passed to `shard_failed`.
    """

    def __init__(
        self,
        topic: str,
        internal_log: InternalLog,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        make: Callable[[int, int], ShardT],
        on_loaded: Callable[[ShardT], None] = lambda _: None,
        may_answer: Callable[[], bool] = lambda: True,
    ) -> None:
        self._topic = topic
        self._log = internal_log
        self._clock = clock
        self._partition_count = partition_count
        self._make = make
        self._on_loaded = on_loaded
        self._may_answer = may_answer
        self.shards: dict[int, ShardT] = {}
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops = Supervisor()
        self._is_stopped = False

    def __iter__(self) -> Iterator[ShardT]:
        return iter(tuple(self.shards.values()))

    @property
    def is_loading(self) -> bool:
        """True while some partition is not loaded yet."""
        return any(not shard.is_loaded for shard in self.shards.values())

    @property
    def loaded_partitions(self) -> list[int]:
        """The partitions whose shards are loaded; empty while this broker does not know whether it
        still leads them.
        """
        return sorted(number for number, shard in self.shards.items() if shard.is_loaded) if self._may_answer() else []

    def loaded(self, partition: int) -> ShardT:
        """The shard of a partition. Raises CoordinatorRefusal if this broker does not lead the
        partition, as far as it knows, or has not loaded it yet.
        """
        shard = self.shards.get(partition)
        if shard is None or not self._may_answer():
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        if not shard.is_loaded:
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)
        return shard

    def refresh(self) -> None:
        """Load partitions that this broker has begun to lead, and drop partitions that it has
        ceased to lead.
        """
        if self._is_stopped:
            return
        wanted = {
            partition: epoch
            for partition in range(self._partition_count())
            if (epoch := self._log.leader_epoch(partition)) is not None
        }
        for partition, shard in tuple(self.shards.items()):
            # another epoch is another leadership: decisions under the old one may not be in the log
            if wanted.get(partition) != shard.leader_epoch:
                self._drop(shard, ErrorCode.not_coordinator)
        for partition, epoch in wanted.items():
            if partition not in self.shards:
                shard = self.shards[partition] = self._make(partition, epoch)
                self.spawn(self._load(shard))

    async def _load(self, shard: ShardT) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            async with self._loads:
                # the leadership may have been lost while this load waited for its turn
                if shard.is_ended:
                    return
                record_count = await shard.load()
        except (PartitionFailure, InvalidBatch) as error:
            log.warning(
                "internal partition could not be loaded",
                topic=self._topic,
                partition=shard.partition,
                reason=str(error),
            )
            self._load_failed(shard)
            return
        except Exception:
            # a bug of ours: clients must not get COORDINATOR_LOAD_IN_PROGRESS forever
            note_death("coordinator load", topic=self._topic, partition=shard.partition)
            self._load_failed(shard)
            return
        # the leadership may have been lost during the load
        if shard.is_ended:
            return
        state_change.info(
            "internal partition loaded",
            topic=self._topic,
            partition=shard.partition,
            leader_epoch=shard.leader_epoch,
            records=record_count,
            elapsed_ms=round(self._clock.monotonic_ms() - started_ms, 1),
        )
        self._on_loaded(shard)

    def _load_failed(self, shard: ShardT) -> None:
        if not shard.is_ended:
            shard.end(ErrorCode.coordinator_not_available)
            self.shard_failed(shard)

    def shard_failed(self, shard: StateShard[Any, Any, Any]) -> None:
        """The shard has ended by itself: replay its partition after a delay."""
        self._drop(shard, ErrorCode.coordinator_not_available)
        if not self._is_stopped:
            self.spawn(self._refresh_later())

    async def _refresh_later(self) -> None:
        await asyncio.sleep(RELOAD_DELAY_MS / 1000)
        self.refresh()

    def _drop(self, shard: StateShard[Any, Any, Any], code: ErrorCode) -> None:
        if self.shards.get(shard.partition) is shard:
            del self.shards[shard.partition]
            state_change.info(
                "internal partition dropped",
                topic=self._topic,
                partition=shard.partition,
                leader_epoch=shard.leader_epoch,
            )
        if not shard.is_ended:
            shard.end(code)

    def keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until the coordinator stops."""
        self._loops.start(name, run)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background until the coordinator stops."""
        task = in_background("coordinator", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Write the decided records, answer all waiting callers, and stop all timers."""
        self._is_stopped = True
        await self._loops.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shard in self:
            await shard.settled()
            self._drop(shard, ErrorCode.not_coordinator)
