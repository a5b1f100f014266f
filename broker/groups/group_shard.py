"""One partition of `__consumer_offsets` that this broker leads: the group machine, its records and
its timers.

`broker/coordination/state_shard.py` has the parts that internal partitions share. Offsets that a
transaction commits are appended under the producer's id and become valid when its marker is in the
partition; markers go through the same queue as everything else, so that memory and log see them in
the same order. Called by `coordinator.py` only, on its event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from kio.schema.errors import ErrorCode

from broker.coordination.shard_lanes import Access
from broker.coordination.shard_writes import Content
from broker.coordination.state_shard import InternalLog, StateShard
from broker.coordination.timer_queue import TimerQueue
from broker.groups.core import group_records
from broker.groups.core.consumer_protocol.consumer_group_states import TopicShapes
from broker.groups.core.group_machine import Groups
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    Command,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    Decision,
    EndProducerTransaction,
    FireTimer,
    ForgetTopics,
    GroupChanged,
    OffsetPending,
    PartitionsReply,
    Reply,
    ResumeGroup,
    StartTimer,
    TimerKey,
    TransactionEnded,
)
from broker.groups.core.group_turn import GroupLimits
from broker.log.markers import read_marker
from broker.replication.core.verification_guards import VerificationGuards
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.batches.record_batch import TRANSACTIONAL_BIT, BatchHeader, iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.batches.transaction_records import encode_marker
from wire.protocol.byte_reader import Malformed
from wire.znodes.group_configs import GroupConfigs

log = get_logger(__name__)


class GroupShard(StateShard[Command, Reply, Decision]):
    """The groups of one partition that this broker leads."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        limits: GroupLimits,
        internal_log: InternalLog,
        clock: Clock,
        on_failure: Callable[[StateShard[Any, Any, Any]], None],
        topics: Callable[[], TopicShapes],
        configs_of: Callable[[str], GroupConfigs],
    ) -> None:
        super().__init__(partition, leader_epoch, internal_log=internal_log, clock=clock, on_failure=on_failure)
        self.groups = Groups(limits, configs_of)
        self._topics = topics
        self.guards = VerificationGuards()
        self.timers: TimerQueue[TimerKey] = TimerQueue(clock, self._fire)
        self._ending_producers: Counter[int] = Counter()

    # --- transactions

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True while the producer's transaction has offsets here and is not being ended."""
        return producer_id not in self._ending_producers and self.groups.has_transaction(producer_id, producer_epoch)

    async def end_transaction(self, command: EndProducerTransaction) -> Reply:
        """Append a marker; then the producer's offsets become valid or are dropped."""
        self.guards.withdraw(command.producer_id)
        ended = self.begin(command)
        self._ending_producers[command.producer_id] += 1
        ended.add_done_callback(lambda _: self._marker_settled(command.producer_id))
        # a caller that gives up does not take the marker back: until it is in the log, or has
        # failed, no offset may be appended behind it
        return await asyncio.shield(ended)

    def _marker_settled(self, producer_id: int) -> None:
        self._ending_producers[producer_id] -= 1
        if not self._ending_producers[producer_id]:
            del self._ending_producers[producer_id]

    # --- loading

    def _replay(self, batches: bytes) -> int:
        record_count = 0
        for position, header in iterate_headers(batches):
            if header.is_control:
                self._replay_marker(batches, position, header)
                continue
            for record in decode_batch(batches, position, header):
                self._replay_record(record, header)
                record_count += 1
        return record_count

    def _replay_marker(self, batches: bytes, position: int, header: BatchHeader) -> None:
        marker = read_marker(batches, position, header)
        if marker is not None:
            ended = TransactionEnded(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
            )
            self.groups.apply(ended)

    def _replay_record(self, record: Record, header: BatchHeader) -> None:
        if record.key is None:
            return
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        try:
            fact = group_records.decode(record.key, record.value, headers=record.headers, producer=producer)
        except Malformed as error:
            # One record that cannot be decoded must not remove all groups of the partition.
            log.warning(
                "unreadable group record skipped", partition=self.partition, offset=record.offset, reason=str(error)
            )
            return
        if fact is not None:
            self.groups.apply(fact)

    def _resume(self) -> None:
        self.groups.settle_replay()
        for group in self.groups:
            self.submit(ResumeGroup(group_id=group.group_id))

    # --- commands

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Remove the offsets of deleted topics; the shard is loaded."""
        # lanes too: a commit under way may be the first one of its group
        for name in dict.fromkeys((*self.groups.names(), *self._lanes)):
            self.submit(ForgetTopics(group_id=name, topics=topics))

    def _lane_of(self, command: Command) -> str:
        if isinstance(command, EndProducerTransaction):
            return f"\0producer {command.producer_id}"
        return command.group_id

    def _access(self, command: Command) -> Access:
        if isinstance(command, CommitOffsets):
            return Access.SIDE_BY_SIDE
        # a hundred members, each waiting for the records of all before it, would lose their
        # sessions while waiting
        return Access.BUILT_UPON if isinstance(command, ConsumerHeartbeat) else Access.ALONE

    def _decide(self, command: Command, token: int) -> Decision:
        if isinstance(command, CommitTransactionOffsets) and not self._is_admitted(command):
            refusal = PartitionsReply(error=ErrorCode.invalid_producer_epoch)
            return Decision(effects=(Answer(token=token, reply=refusal),))
        decision = self.groups.decide(command, now_ms=self._clock.now_ms(), token=token)
        if decision.reason:
            log.info("group", group=command.group_id, partition=self.partition, reason=decision.reason)
        return decision

    def _is_admitted(self, command: CommitTransactionOffsets) -> bool:
        """Checked when the command's turn comes: its transaction may have ended while it waited."""
        # where the transaction's coordinator is not asked, only the log shows that another producer
        # has come
        if command.producer_epoch < self._log.producer_epoch(self.partition, command.producer_id):
            return False
        return self.has_transaction(command.producer_id, command.producer_epoch) or self.guards.is_valid(
            command.producer_id, command.guard
        )

    def _content_of(self, decision: Decision) -> Content:
        plain = []
        pending = []
        for record in decision.records:
            match record:
                case OffsetPending():
                    pending.append(record)
                case TransactionEnded():
                    return encode_marker(
                        producer_id=record.producer_id,
                        producer_epoch=record.producer_epoch,
                        is_commit=record.is_commit,
                        coordinator_epoch=record.coordinator_epoch,
                        now_ms=self._clock.now_ms(),
                    )
                case GroupChanged():
                    pass
                case _:
                    plain.append(group_records.encode(record))
        return _transactional_batch(pending, self._clock.now_ms()) if pending else plain

    def _apply(self, decision: Decision) -> None:
        for record in decision.records:
            self.groups.apply(record)

    def _act(self, decision: Decision) -> None:
        for effect in decision.effects:
            match effect:
                case Answer(token=token, reply=reply):
                    self._answer(token, reply)
                case StartTimer(key=key, delay_ms=delay_ms, keeps_running=keeps_running):
                    self.timers.start(key, delay_ms, keeps_running=keeps_running)
                case CancelTimer(key=key):
                    self.timers.cancel(key)
                case _:
                    assert_never(effect)

    def _fire(self, key: TimerKey) -> None:
        self.submit(FireTimer(group_id=key.group_id, key=key, topics=self._topics()))

    def _stop(self) -> None:
        self.timers.stop()


def _transactional_batch(records: Sequence[OffsetPending], now_ms: int) -> bytes:
    """One batch: a commit of offsets belongs to one producer."""
    return encode_batch(
        [group_records.encode(record)._replace(timestamp_ms=now_ms) for record in records],
        producer_id=records[0].producer_id,
        producer_epoch=records[0].producer_epoch,
        attributes=TRANSACTIONAL_BIT,
    )
