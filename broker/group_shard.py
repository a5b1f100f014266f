"""One partition of `__consumer_offsets` that this broker leads: its machine, its pending appends, its timers.

Commits in the measure of `core/groups.py`: decide, append, apply, answer. While one append is under way, further decisions collect and go
out together with the next one. Commands of one group run one after the other; only offset commits run side by side. An append that
fails, or whose outcome is unknown, ends the shard: everybody who waits is told to try again, and the coordinator replays the log.

What waits here is bounded by the connections: each has one request under way. Called by `coordinator.py` only, on its event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from broker.core import group_records
from broker.core.group_messages import (
    Answer,
    CancelTimer,
    Command,
    CommitOffsets,
    Decision,
    FireTimer,
    GroupChanged,
    Reply,
    ResumeGroup,
    StartTimer,
    TimerKey,
)
from broker.core.group_turn import GroupLimits
from broker.core.groups import Groups
from broker.hosted_partition import PartitionFailure
from broker.timer_queue import TimerQueue
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.byte_reader import Malformed
from wire.records import Record, decode_records, encode_batch

log = get_logger(__name__)

BATCH_BYTES_MAX: Final = 512 * 1024
"""Records of one batch; well below the smallest message.max.bytes that anybody sets. A single larger record stays alone."""
APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Batches of one append, unless a single decision has more."""


class InternalLog(Protocol):
    """`__consumer_offsets` as a coordinator needs it. Failures are PartitionFailure."""

    def leader_epoch(self, partition: int) -> int | None:
        """The epoch under which this broker leads the partition, None when it does not."""
        ...

    async def append(self, partition: int, records: bytes) -> int:
        """Append batches; returns the last offset once they are committed."""
        ...

    def read_all(self, partition: int) -> AsyncIterator[bytes]:
        """Whole batches from the start to what is committed now."""
        ...


class CoordinatorRefusal(Exception):
    """The coordinator cannot take the request here or now; `code` goes to the client."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class _Lane:
    """The commands of one group: what is being written, and what waits for that."""

    write_count: int = 0
    has_exclusive_write: bool = False
    waiting: deque[tuple[Command, int]] = field(default_factory=deque)

    def may_run(self, command: Command) -> bool:
        if not self.write_count:
            return True
        return _is_shared(command) and not self.has_exclusive_write


def _is_shared(command: Command) -> bool:
    return isinstance(command, CommitOffsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A decision on its way into the log."""

    group_id: str
    decision: Decision
    batches: bytes


class GroupShard:
    """See the module."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        limits: GroupLimits,
        internal_log: InternalLog,
        clock: Clock,
        on_failure: Callable[[GroupShard], None],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.groups = Groups(limits)
        self.is_loaded = False
        self.is_ended = False
        self.timers: TimerQueue[TimerKey] = TimerQueue(clock, self._fire)
        self._log = internal_log
        self._clock = clock
        self._on_failure = on_failure
        self._next_token = 1
        self._requests: dict[int, asyncio.Future[Reply]] = {}
        self._lanes: dict[str, _Lane] = {}
        self._unwritten: deque[_Write] = deque()
        self._writer: asyncio.Task[None] | None = None

    # --- loading

    async def load(self) -> int:
        """Replay the log; how many records it had. PartitionFailure, or InvalidBatch for a log that cannot be read."""
        record_count = 0
        async for batches in self._log.read_all(self.partition):
            for record in decode_records(batches):
                self._replay(record)
                record_count += 1
        self.groups.settle_replay()
        self.is_loaded = True
        for group in self.groups:
            self.submit(ResumeGroup(group_id=group.group_id))
        return record_count

    def _replay(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            fact = group_records.decode(record.key, record.value)
        except Malformed as error:
            # One record that nobody can read must not take all groups of the partition away.
            log.warning("group record passed over", partition=self.partition, offset=record.offset, reason=str(error))
            return
        if fact is not None:
            self.groups.apply(fact)

    # --- commands

    async def ask(self, command: Command) -> Reply:
        """Run a command and wait for its answer, which a later command may give. CoordinatorRefusal when the shard ends."""
        token = self._next_token
        self._next_token += 1
        request: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requests[token] = request
        try:
            self.submit(command, token)
            return await request
        finally:
            self._requests.pop(token, None)

    def submit(self, command: Command, token: int = 0) -> None:
        """Run a command as soon as its group's lane is free. CoordinatorRefusal when the shard has ended."""
        if self.is_ended:
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        lane = self._lanes.get(command.group_id)
        if lane is not None and (lane.waiting or not lane.may_run(command)):
            lane.waiting.append((command, token))
            return
        self._run(command, token)

    def _run(self, command: Command, token: int) -> None:
        decision = self.groups.decide(command, now_ms=self._clock.now_ms(), token=token)
        if decision.reason:
            log.info("group", group=command.group_id, partition=self.partition, reason=decision.reason)
        durable = [group_records.encode(record) for record in decision.records if not isinstance(record, GroupChanged)]
        if not durable:
            self._take_effect(decision)
            return
        lane = self._lanes.setdefault(command.group_id, _Lane())
        lane.write_count += 1
        lane.has_exclusive_write = not _is_shared(command)
        batches = b"".join(_batches(durable, now_ms=self._clock.now_ms()))
        self._unwritten.append(_Write(group_id=command.group_id, decision=decision, batches=batches))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _take_effect(self, decision: Decision) -> None:
        for record in decision.records:
            self.groups.apply(record)
        for effect in decision.effects:
            match effect:
                case Answer(token=token, reply=reply):
                    request = self._requests.get(token)
                    if request is not None and not request.done():
                        request.set_result(reply)
                case StartTimer(key=key, delay_ms=delay_ms):
                    self.timers.start(key, delay_ms)
                case CancelTimer(key=key):
                    self.timers.cancel(key)

    def _fire(self, key: TimerKey) -> None:
        self.submit(FireTimer(group_id=key.group_id, key=key))

    # --- writing

    async def _write(self) -> None:
        # Decisions of the same turn of the loop join the first append.
        await asyncio.sleep(0)
        try:
            while self._unwritten:
                writes = self._next_writes()
                await self._log.append(self.partition, b"".join(write.batches for write in writes))
                if self.is_ended:
                    return
                for write in writes:
                    self._finish(write)
        except PartitionFailure as failure:
            log.warning("append to a group partition failed", partition=self.partition, reason=str(failure))
            self._fail(failure.code)
        except Exception:
            # Our bug, whatever it is: nobody shall wait for a shard that cannot go on.
            self._fail(ErrorCode.coordinator_not_available)
            log.exception("group partition ended", partition=self.partition)
            raise
        finally:
            self._writer = None

    def _next_writes(self) -> list[_Write]:
        writes: list[_Write] = []
        size_bytes = 0
        while self._unwritten and (not writes or size_bytes + len(self._unwritten[0].batches) <= APPEND_BYTES_MAX):
            write = self._unwritten.popleft()
            size_bytes += len(write.batches)
            writes.append(write)
        return writes

    def _finish(self, write: _Write) -> None:
        self._take_effect(write.decision)
        lane = self._lanes[write.group_id]
        lane.write_count -= 1
        while lane.waiting and lane.may_run(lane.waiting[0][0]):
            self._run(*lane.waiting.popleft())
        if not lane.write_count:
            del self._lanes[write.group_id]

    def _fail(self, code: ErrorCode) -> None:
        if self.is_ended:
            return
        is_led_elsewhere = code is ErrorCode.not_leader_or_follower
        self.end(ErrorCode.not_coordinator if is_led_elsewhere else ErrorCode.coordinator_not_available)
        self._on_failure(self)

    # --- the end

    def end(self, code: ErrorCode) -> None:
        """Forget everything; whoever waits gets the code. The shard is not used any more."""
        self.is_ended = True
        self.is_loaded = False
        self.timers.stop()
        self._unwritten.clear()
        self._lanes.clear()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(CoordinatorRefusal(code))

    async def settled(self) -> None:
        """Wait until everything decided so far is written or has failed."""
        writer = self._writer
        if writer is not None:
            await asyncio.gather(writer, return_exceptions=True)


def _batches(records: Iterable[group_records.KeyValue], *, now_ms: int) -> Iterable[bytes]:
    batch: list[Record] = []
    size_bytes = 0
    for key, value in records:
        record_bytes = len(key) + len(value or b"")
        if batch and size_bytes + record_bytes > BATCH_BYTES_MAX:
            yield encode_batch(batch)
            batch, size_bytes = [], 0
        batch.append(Record(key, value, now_ms))
        size_bytes += record_bytes
    yield encode_batch(batch)
