"""A partition that this broker holds: its state, its log, its link role, and the values that the
hot path reads.

Owned by `replicas.py`. Roles and errors are worked out when an image changes, so that Produce and
Fetch only read attributes. Every failure is a `PartitionFailure` with the Kafka error code that the
client gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from mypy_extensions import mypyc_attr

from broker.log.partition_log import PartitionLog
from broker.log.source_seen import SourceSeen
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.core.partition_effects import NO_EFFECTS, Effects
from broker.replication.core.replication_throttle import names_replica
from broker.replication.core.verification_guards import VerificationGuards
from broker.settings.core.topic_configs import LogConfig
from wire.batches.record_batch import Buffer, InvalidBatch, read_header
from wire.protocol.ids import ACKS_ALL, DEBUGGING_CONSUMER, MIRROR, READ_COMMITTED, UNKNOWN
from wire.protocol.messages.produce_codec import RecordError

SETTLING_MS: Final = 35_000
"""Producers wait request.timeout.ms for a leader that has vanished, by default 30 s, and send again
then.
"""
NEVER_SEEN: Final = SourceSeen()
READERS_REMEMBERED_MS: Final = 30_000.0
"""Time (ms) after its last fetch by a client for which a follower counts as read by clients."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionFailure(Exception):
    """The partition cannot do what was asked; `code` and the records at fault go to the client."""

    def __init__(self, code: ErrorCode, reason: str | None = None, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(reason or code.name)
        self.code = code
        self.reason = reason
        self.record_errors = record_errors


@mypyc_attr(allow_interpreted_subclasses=True)
class HostedPartition:
    """State, log and roles of one partition."""

    __slots__ = (
        "clients_read_at_ms",
        "config",
        "guards",
        "index",
        "is_copy",
        "key",
        "leader_lag",
        "log",
        "metrics",
        "read_error",
        "settles_until_ms",
        "state",
        "topic",
        "topic_id",
        "topic_uuid",
        "write_error",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        state: Partition,
        config: LogConfig,
        metrics: TopicMetrics,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.topic_uuid = UUID(bytes=topic_id)
        """The same, as requests have it."""
        self.index = index
        self.key = (topic, index)
        self.log = log
        self.state = state
        self.config = config
        self.metrics = metrics
        self.write_error = ErrorCode.not_leader_or_follower
        self.read_error = ErrorCode.not_leader_or_follower
        self.is_copy = False
        """True while the other site of a link leads the topic: it has every record."""
        self.clients_read_at_ms = float("-inf")
        """The time of the last fetch by a client from this replica as a follower (KIP-392)."""
        self.settles_until_ms = 0.0
        """Monotonic time until which unknown producers must begin with their first batch; 0 for
        none.
        """
        self.leader_lag = 0
        """Records below the leader's high watermark that a follower lacks, as of the leader's last
        answer.
        """
        self.guards = VerificationGuards()

    @property
    def source(self) -> SourceSeen:
        """The last report of a mirror about the log's source, as stored."""
        return self.log.source

    def source_of_copy(self, last_record_epoch: int) -> SourceSeen:
        """The same, but an unknown source if the log's last record is not from that source."""
        seen = self.log.source
        return seen if seen.log_epoch == last_record_epoch else NEVER_SEEN

    @property
    def last_record_epoch(self) -> int:
        """The leader epoch of the last record, -1 when there is none: an epoch that has only begun
        does not count.
        """
        end = self.log.log_end_offset
        return self.log.epoch_at(end - 1) if end > self.log.log_start_offset else UNKNOWN

    def begin_following(self) -> None:
        """The log is a copy from now on: it forgets epochs of a leadership that wrote nothing,
        since its leader never had them.
        """
        # Only this log has the start of an epoch that wrote nothing; a truncation at the end drops
        # it.
        if self.log.latest_epoch != self.last_record_epoch:
            self.log.truncate_to(self.log.log_end_offset)

    def is_read_by_clients(self, now_ms: float) -> bool:
        """True while clients have lately fetched from this follower."""
        return now_ms - self.clients_read_at_ms < READERS_REMEMBERED_MS

    @property
    def is_throttled_leader(self) -> bool:
        """True when what this replica sends as a leader counts for the throttle."""
        return names_replica(self.config.throttled_leaders, partition=self.index, node_id=self.state.node_id)

    @property
    def is_throttled_follower(self) -> bool:
        """True when what this replica takes as a follower counts for the throttle."""
        return names_replica(self.config.throttled_followers, partition=self.index, node_id=self.state.node_id)

    @property
    def is_in_sync(self) -> bool:
        """True for a follower that lacks nothing, or that counts as in sync."""
        return self.leader_lag == 0 or self.state.node_id in self.state.isr

    def end_of_truncation(self, offset: int) -> int:
        """The end of the log after a truncation at `offset`: the log start if compaction went
        further, so that the log is copied anew. A replica in sync whose records the other site may
        lack is not emptied: it may lead next.
        """
        is_needed = self.state.node_id in self.state.isr and not self.is_copy
        return offset if is_needed else self.log.whole_end_below(offset)

    def apply_config(self, config: LogConfig) -> Effects:
        """This config is in force from now on."""
        if self.config == config:
            return NO_EFFECTS
        self.config = config
        self.log.update_config(config)
        return self.state.require_in_sync(config.insync_replicas_min)

    def begin_writing(self, *, lossy_floor: int, now_ms: float) -> None:
        """A writer's leader epoch begins at the log's end. Producers whose unmirrored batches were
        lost in a promotion (`TopicRole.lossy_floor`) may continue with a gap in their sequences.

        A passive leader begins no epoch of its own: those in its log are the source's. Where no
        acknowledged record was lost, a gap means that a batch is still in flight. After any change
        of leaders other than that promotion, the same is true for producers that this log does not
        know.
        """
        # Idempotent: an epoch that the log already has is not assigned again.
        self.log.start_leader_epoch(self.state.leader_epoch)
        # This site takes writes now, so a mirror's reports about a source are outdated.
        self.source.forget()
        is_promotion = False
        if lossy_floor > 0:
            promoted_at = self.log.first_offset_since_epoch(lossy_floor)
            if promoted_at is not None:
                self.log.producers.carry_over(promoted_at)
                # The log already has records of this epoch, so the promotion came before this
                # change of leaders.
                is_promotion = promoted_at == self.log.log_end_offset
        # Epoch 0 belongs to the first leader, so no batch can be in flight to an earlier one.
        is_successor = self.state.leader_epoch > 0 and not is_promotion
        self.settles_until_ms = now_ms + SETTLING_MS if is_successor else 0.0
        self.log.producers.must_newcomers_begin = is_successor

    def settle(self, now_ms: float) -> None:
        """When the grace period is over, the batches that were on their way to the former leader
        have arrived or expired, so any producer may begin with any sequence again.
        """
        if self.settles_until_ms and now_ms >= self.settles_until_ms:
            self.settles_until_ms = 0.0
            self.log.producers.must_newcomers_begin = False

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """PartitionFailure when the client knows another leader epoch (KIP-320); -1 is not
        checked.
        """
        _check_epoch(current_leader_epoch, self.state.leader_epoch)

    def check_copy_readable(self, current_leader_epoch: int, active_leader_epoch: int) -> None:
        """PartitionFailure unless a consumer may read this copy of a standby: it has a replica
        here, and the client knows the leader epoch of the active site.
        """
        self.check_replica_here()
        _check_epoch(current_leader_epoch, active_leader_epoch)

    def check_readable(self, replica_id: int) -> None:
        """PartitionFailure unless this broker leads the partition and the reader may read here.

        The link's role concerns clients alone: followers of this site and tools read in any role.
        """
        if not self.state.is_leader:
            raise PartitionFailure(ErrorCode.not_leader_or_follower)
        if replica_id >= 0:
            # A broker that a reassignment has removed may still fetch for a moment.
            if replica_id not in self.state.followers:
                raise PartitionFailure(
                    ErrorCode.not_leader_or_follower, f"broker {replica_id} has no replica of the partition"
                )
        elif self.read_error is not ErrorCode.none and replica_id != DEBUGGING_CONSUMER:
            raise PartitionFailure(self.read_error)

    def check_readable_here(self) -> None:
        """Like `check_readable`, for a client that may also read from a follower (KIP-392)."""
        self.check_replica_here()
        if self.read_error is not ErrorCode.none:
            raise PartitionFailure(self.read_error)

    def check_replica_here(self) -> None:
        """PartitionFailure unless this broker leads or follows the partition."""
        if not (self.state.is_leader or self.state.is_follower):
            raise PartitionFailure(ErrorCode.not_leader_or_follower)

    def check_writable(self, acks: int, *, passes_fence: bool = False) -> None:
        """PartitionFailure unless a client may append here with these acks; `passes_fence` where
        only a link's fence stands against it.
        """
        if not self.state.is_leader:
            raise PartitionFailure(ErrorCode.not_leader_or_follower)
        # a marker or an abort passes the fence: it adds no record of a client
        is_fence_passed = passes_fence and self.write_error is ErrorCode.not_leader_or_follower
        if self.write_error is not ErrorCode.none and not is_fence_passed:
            raise PartitionFailure(self.write_error)
        if acks == ACKS_ALL and not self.state.has_enough_in_sync:
            raise PartitionFailure(ErrorCode.not_enough_replicas)

    def check_appendable(self, acks: int, records: Buffer, *, passes_fence: bool) -> None:
        """Like `check_writable`. The log remembers a refused batch, so that batches sent after it
        are not appended before it.
        """
        try:
            self.check_writable(acks, passes_fence=passes_fence)
        except PartitionFailure:
            with suppress(InvalidBatch):
                self.log.producers.note_refused(read_header(records))
            raise

    def readable_end(self, *, replica_id: int, isolation_level: int) -> int:
        """The offset up to which a reader may see records."""
        if replica_id >= 0:
            return self.state.log_end_offset
        # mirrors may be ahead of consumers: a sync link's consumers wait for what mirrors have sent
        end = self.state.mirrorable_end if replica_id in (DEBUGGING_CONSUMER, MIRROR) else self.state.high_watermark
        return min(self.log.last_stable_offset, end) if isolation_level == READ_COMMITTED else end


def _check_epoch(client_epoch: int, leader_epoch: int) -> None:
    if client_epoch in (UNKNOWN, leader_epoch):
        return
    if client_epoch < leader_epoch:
        raise PartitionFailure(ErrorCode.fenced_leader_epoch)
    raise PartitionFailure(ErrorCode.unknown_leader_epoch)
