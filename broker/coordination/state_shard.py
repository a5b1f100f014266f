"""One partition of an internal topic that this broker leads: its machine and its pending appends.
Groups and transactions derive from this class. The common part of groups and transactions.

It works as the machines in `core/` expect: decide, append, apply, answer. While one append is in
progress, further decisions are collected and appended together with the next one, their plain
records in one batch. Commands of one lane (a group, a transactional id) run one after the other,
unless the shard allows them to run concurrently, or allows decisions to build on others that are
not in the log yet. An append that fails, or whose outcome is unknown, ends the shard: waiting
callers get a retriable error, and the coordinator replays the log.

The number of waiting commands is bounded by the connections: each has one request in flight. Called
by coordinators only, on their event loop.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from broker.coordination.shard_lanes import Access, CommandT, Lane
from broker.coordination.shard_writes import (
    APPEND_BYTES_MAX,
    AwaitedWrites,
    Content,
    DecisionT,
    Write,
    batches_of,
    bytes_of,
)
from broker.replication.hosted_partition import PartitionFailure
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import in_background, note_death, was_asked_to_end

log = get_logger(__name__)


ReplyT = TypeVar("ReplyT")


class InternalLog(Protocol):
    """An internal topic as a coordinator uses it. Failures are PartitionFailure."""

    def leader_epoch(self, partition: int) -> int | None:
        """The epoch under which this broker leads the partition; None if it does not lead it."""
        ...

    def producer_epoch(self, partition: int, producer_id: int) -> int:
        """The newest epoch of the producer in the partition; NO_EPOCH if it has none there."""
        ...

    def append(self, partition: int, records: bytes) -> Awaitable[object] | None:
        """Append batches; return an object to wait for until they are committed, None if they
        already are. Either may fail.
        """
        ...

    def read_all(self, partition: int) -> AsyncIterator[bytes]:
        """Whole batches from the start to the current committed end."""
        ...


class CoordinatorRefusal(Exception):
    """The coordinator cannot serve the request here or now; the client gets `code`."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class StateShard(ABC, Generic[CommandT, ReplyT, DecisionT]):
    """One partition: its machine, which a subclass gives, and its appends."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        internal_log: InternalLog,
        clock: Clock,
        on_failure: Callable[[StateShard[Any, Any, Any]], None],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self.is_ended = False
        self._log = internal_log
        self._clock = clock
        self._on_failure = on_failure
        self._next_token = 1
        self._requests: dict[int, asyncio.Future[ReplyT]] = {}
        self._lanes: dict[str, Lane[CommandT]] = {}
        self._unwritten: deque[Write[DecisionT]] = deque()
        self._is_writing = False
        self._writer: asyncio.Task[None] | None = None
        """The task that waits for an append."""
        self._taken_count = 0
        self._unfinished: dict[int, None] = {}
        """The numbers of unfinished commands, the oldest first: neither written yet, nor decided
        without records.
        """
        self._settling: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Requests that wait until all commands up to a number are decided."""

    # --- what the machine brings

    @abstractmethod
    def _replay(self, batches: bytes) -> int:
        """Apply the records of these batches; return their number. InvalidBatch."""

    @abstractmethod
    def _resume(self) -> None:
        """After the replay: continue where the former coordinator stopped."""

    @abstractmethod
    def _lane_of(self, command: CommandT) -> str:
        """The lane of the command: the group or transactional id that it belongs to."""

    @abstractmethod
    def _access(self, command: CommandT) -> Access:
        """Return how the command shares its lane with others."""

    @abstractmethod
    def _decide(self, command: CommandT, token: int) -> DecisionT:
        """Decide the command: records to write, effects, and the reply."""

    @abstractmethod
    def _content_of(self, decision: DecisionT) -> Content:
        """The durable records of the decision; empty if it has none."""

    @abstractmethod
    def _apply(self, decision: DecisionT) -> None:
        """Take the records into memory."""

    @abstractmethod
    def _act(self, decision: DecisionT) -> None:
        """Send answers, and start and stop timers, after the records are in the log."""

    @abstractmethod
    def _stop(self) -> None:
        """The shard has ended: no timer may fire after this."""

    # --- loading

    async def load(self) -> int:
        """Replay the log; return the number of its records. Raises PartitionFailure, or
        InvalidBatch for a log that cannot be read. A shard that has ended meanwhile is not loaded.
        """
        record_count = 0
        async for batches in self._log.read_all(self.partition):
            if self.is_ended:
                return record_count
            record_count += self._replay(batches)
        if not self.is_ended:
            self.is_loaded = True
            self._resume()
        return record_count

    # --- commands

    async def ask(self, command: CommandT) -> ReplyT:
        """Run a command and wait for its answer, which a later command may give. CoordinatorRefusal
        when the shard ends.
        """
        # the token that `begin` will take: the place for the answer is removed even if the caller
        # gives up
        token = self._next_token
        try:
            return await self.begin(command)
        finally:
            self._requests.pop(token, None)

    def begin(self, command: CommandT) -> asyncio.Future[ReplyT]:
        """Run a command; the returned future gets its answer. Raises CoordinatorRefusal if the
        shard has ended, or ends.
        """
        token = self._next_token
        self._next_token += 1
        request: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._requests[token] = request
        try:
            self.submit(command, token)
        except BaseException:
            self._requests.pop(token, None)
            raise
        return request

    def submit(self, command: CommandT, token: int = 0) -> None:
        """Run a command as soon as its lane is free. Raises CoordinatorRefusal if the shard has
        ended.
        """
        if self.is_ended:
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        name, access = self._lane_of(command), self._access(command)
        lane = self._lanes.get(name)
        self._taken_count += 1
        # behind the waiting commands, even if it could run at the same time as the append in
        # progress
        if lane is not None and (lane.waiting or not lane.may_run(access)):
            lane.waiting.append((command, token, self._taken_count))
            self._unfinished[self._taken_count] = None
            return
        self._run(command, token, self._taken_count, name, access)

    def _run(self, command: CommandT, token: int, number: int, name: str, access: Access) -> None:
        decision = self._decide(command, token)
        content = self._content_of(decision)
        lane, is_applied = self._lanes.get(name) or Lane(), access is Access.BUILT_UPON
        # no records to write, and no undecided command before it: the answer can be sent
        # immediately
        if not content and not (is_applied and lane.write_count):
            self._apply(decision)
            self._act(decision)
            self._note_finished(number)
            return
        self._unfinished[number] = None
        self._lanes[name] = lane
        lane.write_count += 1
        lane.access = access
        if is_applied:
            self._apply(decision)
        size_bytes = len(content) if isinstance(content, bytes) else sum(map(bytes_of, content))
        self._unwritten.append(
            Write(
                number=number,
                lane=name,
                decision=decision,
                content=content,
                size_bytes=size_bytes,
                is_applied=is_applied,
            )
        )
        if not self._is_writing:
            self._is_writing = True
            # at the end of this turn of the loop: all decisions of the turn share one append
            asyncio.get_running_loop().call_soon(self._begin_writing)

    def _answer(self, token: int, reply: ReplyT) -> None:
        request = self._requests.pop(token, None)
        if request is not None and not request.done():
            request.set_result(reply)

    # --- writing

    def _begin_writing(self) -> None:
        """Append the decisions of this turn of the event loop together. A task is created only when
        an append has to wait.
        """
        try:
            awaited = self._write_until_one_waits()
        except Exception as error:
            self._is_writing = False
            self._writing_failed(error)
            return
        if awaited is None:
            self._is_writing = False
        else:
            self._writer = in_background("coordinator write", self._write(awaited))

    async def _write(self, awaited: AwaitedWrites[DecisionT] | None) -> None:
        try:
            while awaited is not None:
                await awaited.append
                # the shard was dropped during the append: the next replay of the log shows the
                # outcome
                if self.is_ended:
                    return
                for write in awaited.writes:
                    self._finish(write)
                awaited = self._write_until_one_waits()
        except (Exception, asyncio.CancelledError) as error:
            # a cancelled append is a failure unless the shard itself was asked to end
            if was_asked_to_end():
                raise
            self._writing_failed(error)
        finally:
            self._writer = None
            self._is_writing = False

    def _write_until_one_waits(self) -> AwaitedWrites[DecisionT] | None:
        """Append decisions until an append has to wait, and return that append; None if everything
        is written.
        """
        while self._unwritten:
            writes = self._next_writes()
            # a decision without records only waits for the records that it was built on, and the
            # log has these
            batches = batches_of(writes, now_ms=self._clock.now_ms())
            append = self._log.append(self.partition, batches) if batches else None
            if append is not None:
                return AwaitedWrites(writes, append)
            for write in writes:
                self._finish(write)
        return None

    def _writing_failed(self, error: BaseException) -> None:
        if isinstance(error, PartitionFailure):
            log.warning("append to an internal partition failed", partition=self.partition, reason=str(error))
            self._fail(error.code)
            return
        # Our bug: no caller may wait for a shard that cannot continue.
        self._fail(ErrorCode.coordinator_not_available)
        note_death("coordinator write", partition=self.partition)

    def _next_writes(self) -> list[Write[DecisionT]]:
        writes: list[Write[DecisionT]] = []
        size_bytes = 0
        # one decision is never divided, however large: all its records must be in one append
        while self._unwritten and (not writes or size_bytes + self._unwritten[0].size_bytes <= APPEND_BYTES_MAX):
            write = self._unwritten.popleft()
            size_bytes += write.size_bytes
            writes.append(write)
        return writes

    def _finish(self, write: Write[DecisionT]) -> None:
        if not write.is_applied:
            self._apply(write.decision)
        self._act(write.decision)
        lane = self._lanes[write.lane]
        lane.write_count -= 1
        # as many commands as may run concurrently; the first one that must run alone stops the
        # others
        while lane.waiting and lane.may_run(access := self._access(lane.waiting[0][0])):
            self._run(*lane.waiting.popleft(), write.lane, access)
        if not lane.write_count:
            del self._lanes[write.lane]
        self._note_finished(write.number)

    def _fail(self, code: ErrorCode) -> None:
        if self.is_ended:
            return
        is_led_elsewhere = code is ErrorCode.not_leader_or_follower
        self.end(ErrorCode.not_coordinator if is_led_elsewhere else ErrorCode.coordinator_not_available)
        self._on_failure(self)

    # --- the end

    def end(self, code: ErrorCode) -> None:
        """Drop all state; waiting callers get the code. The shard is not used after this."""
        self.is_ended = True
        self.is_loaded = False
        self._stop()
        self._unwritten.clear()
        self._lanes.clear()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(CoordinatorRefusal(code))
        self._requests.clear()
        self._unfinished.clear()
        self._release_settled()

    async def settled(self) -> None:
        """Wait until all accepted commands are written or have failed; a cancellation does not end
        the wait.
        """
        if self._unfinished:
            waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append((self._taken_count, waited))
            await waited

    def _note_finished(self, number: int) -> None:
        self._unfinished.pop(number, None)
        if self._settling:
            self._release_settled()

    def _release_settled(self) -> None:
        oldest = next(iter(self._unfinished), math.inf)
        while self._settling and oldest > self._settling[0][0]:
            _, waited = self._settling.popleft()
            if not waited.done():
                waited.set_result(None)
