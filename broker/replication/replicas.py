"""The partitions of this broker: appended to, read from, fetched by followers.

A shell over the replication machines: each call gives a command to a partition's machine
(`core/partition.py`) and acts on its effects (`hosted_partitions.py`). Images come in by
`assigned`, standbys of sync links by `standbys`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode
from mypy_extensions import mypyc_attr

from broker.log.core.batch_checks import BatchRejected
from broker.log.directories.log_placement import DirectoryFailure
from broker.log.directories.log_store import LogStore
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.intake import AppendInfo
from broker.log.partition_log import PartitionLog
from broker.log.segments.log_slice import LogSlice
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.replication.assigned_replicas import AssignedReplicas
from broker.replication.core.replication_throttle import ReplicationThrottle
from broker.replication.core.wake_ups import Change
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.partition_failures import failure_of
from broker.replication.purgatory import Purgatory
from broker.replication.quarantine import Entry
from broker.replication.replica_listeners import ReplicaListeners
from broker.replication.sequence_gaps import SequenceGaps
from broker.replication.standbys import Standbys
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.config import BrokerSettings
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.batches.record_batch import Buffer, InvalidBatch
from wire.protocol.ids import PartitionKey

state_change = state_change_logger()


@mypyc_attr(allow_interpreted_subclasses=True)
class Replicas(HostedPartitions):
    """The partitions that this broker holds, with what clients and followers ask of them."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        logs: LogStore,
        metrics: BrokerMetrics,
        *,
        cuts: TruncatedRecords,
        listeners: ReplicaListeners | None = None,
    ) -> None:
        purgatory = Purgatory(clock)
        super().__init__(clock, logs, purgatory=purgatory, cuts=cuts, listeners=listeners or ReplicaListeners())
        self.standbys = Standbys(self)
        self.assigned = AssignedReplicas(settings, self, self.standbys, metrics)
        self._sequence_gaps = SequenceGaps(purgatory.sessions)
        self.leader_throttle = _throttle(settings, settings.leader_throttle_bytes_per_second)
        self.follower_throttle = _throttle(settings, settings.follower_throttle_bytes_per_second)
        logs.on_failure(self._lose)

    def get(self, image: ClusterImage, topic: str, index: int) -> HostedPartition:
        """The partition; PartitionFailure: its code shows whether the partition exists at another
        broker or does not exist.
        """
        hosted = self.hosted.get((topic, index))
        if hosted is not None:
            return hosted
        # unknown and elsewhere are different answers: only the first may make a client drop the
        # topic
        routed = image.routed_topic(topic)
        if routed is None or index not in routed.topic.partitions:
            raise PartitionFailure(ErrorCode.unknown_topic_or_partition)
        partition = image.partition(topic, index)
        if self.logs.is_offline(topic, index):
            raise PartitionFailure(ErrorCode.kafka_storage_error, "the log directory of this partition is offline")
        # the image says this broker leads, and it does not: only a failed log can be the reason
        if partition is not None and partition.leader == image.node_id:
            raise PartitionFailure(ErrorCode.kafka_storage_error, "the log of this partition could not be opened")
        raise PartitionFailure(ErrorCode.not_leader_or_follower)

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Deletions wait for living followers, and others live now."""
        if before.brokers.keys() != after.brokers.keys():
            for hosted in self:
                self.changed(hosted, Change.LIVE_BROKERS)

    def apply_throttles(self, settings: BrokerSettings) -> None:
        """These bounds of replication are in force now."""
        self.leader_throttle.bytes_per_second_max = settings.leader_throttle_bytes_per_second
        self.follower_throttle.bytes_per_second_max = settings.follower_throttle_bytes_per_second

    # --- log directories

    def quarantined(self, link: str) -> list[Entry]:
        """The quarantine entries of the link's copies here. Reads disks: call it in a thread.
        Raises OSError.
        """
        kept = self.cuts.quarantine.entries([directory.path for directory in self.logs.directories])
        return [entry for entry in kept if entry.link == link]

    def _lose(self, failure: DirectoryFailure) -> None:
        """A log directory went offline: its partitions answer with a storage error from now on."""
        state_change.error(
            "log directory offline", path=failure.path, partitions=len(failure.partitions), reason=failure.reason
        )
        for key in failure.partitions:
            # removed first: a request that comes during the loop must get a storage error
            hosted = self.hosted.pop(key, None)
            if hosted is not None:
                self.standbys.forget(hosted)
                hosted.write_error = hosted.read_error = ErrorCode.kafka_storage_error
                self.offline.add(hosted.key)
                self.act(hosted, hosted.state.leave())
        self.listeners.offline_changed()

    def replace_log(self, moved: PartitionLog) -> None:
        """The partition's log is in another directory now; both have the same batches."""
        hosted = self.hosted.get((moved.topic, moved.partition))
        if hosted is not None:
            hosted.log = moved
            state_change.info("log moved", topic=moved.topic, partition=moved.partition, directory=moved.directory)

    # --- records

    def append(
        self,
        hosted: HostedPartition,
        records: Buffer,
        *,
        acks: int,
        is_from_client: bool = True,
        may_begin_transaction: bool = False,
        passes_fence: bool = False,
    ) -> AppendInfo:
        """Append what a client produced, or a coordinator wrote; PartitionFailure says why not."""
        hosted.metrics.produce_count += 1
        hosted.check_appendable(acks, records, passes_fence=passes_fence)
        # by time, at an append: no timer for each partition
        if hosted.settles_until_ms:
            hosted.settle(self.clock.monotonic_ms())
        try:
            info = hosted.log.append_as_leader(
                records,
                leader_epoch=hosted.state.leader_epoch,
                now_ms=self.clock.now_ms(),
                is_from_client=is_from_client,
                may_begin_transaction=may_begin_transaction,
            )
        except (BatchRejected, InvalidBatch, StorageError) as error:
            hosted.metrics.count_refused(error, len(records))
            if isinstance(error, StorageError):
                self.logs.note_failure(error)
            raise failure_of(self._sequence_gaps.judged(hosted, error)) from error
        # a repeated batch is counted once
        if not info.is_duplicate:
            hosted.metrics.messages_in += info.record_count
            hosted.metrics.bytes_in += len(records)
            # set before the growth is acted on: consumers must not see what a loss of power could
            # take back
            if is_from_client and hosted.log.needs_flush:
                hosted.state.await_flush(info.first_offset, info.last_offset + 1)
            self.record_growth(hosted, len(records))
        return info

    def note_flushed(self, hosted: HostedPartition, *, is_done: bool) -> None:
        """A flush that an append asked for has ended, or was given up."""
        self.act(hosted, hosted.state.record_flush(hosted.log.recovery_point, is_done=is_done))

    def record_growth(self, hosted: HostedPartition, grown_bytes: int) -> None:
        """The log has grown: followers can have it, and without followers in sync it is safe at
        once.
        """
        self.act(hosted, hosted.state.record_append(hosted.log.log_end_offset), appended_bytes=grown_bytes)

    def record_fetch(
        self, hosted: HostedPartition, replica: int, offset: int, *, broker_epoch: int, log_start_offset: int
    ) -> None:
        """A follower asked for `offset`: move the high watermark, and propose the follower for the
        ISR when it has caught up.
        """
        state = hosted.state
        effects = state.record_fetch(
            replica,
            offset,
            now_ms=self.clock.monotonic_ms(),
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
        )
        self.act(hosted, effects)
        if replica not in state.isr:
            self.listeners.follower_outside(hosted, replica)

    def advance_log_start(self, hosted: HostedPartition, offset: int) -> None:
        """Records below `offset` are deleted; followers get this at once."""
        hosted.log.advance_log_start_offset(offset)
        self.changed(hosted, Change.LOG_START)

    def report_log_start(self, log: PartitionLog) -> None:
        """Old segments were deleted: followers get the new log start with their next answer."""
        hosted = self.hosted.get((log.topic, log.partition))
        if hosted is not None:
            self.changed(hosted, Change.RETENTION)

    def takes_writes(self, topic: str, index: int) -> bool:
        """True if the partition is led here and takes clients' writes."""
        hosted = self.hosted.get((topic, index))
        return hosted is not None and hosted.state.is_leader and hosted.write_error is ErrorCode.none

    def writable(self) -> Iterable[PartitionKey]:
        """The partitions led here that take clients' writes."""
        return (one.key for one in self if one.state.is_leader and one.write_error is ErrorCode.none)

    def record_client_read(self, hosted: HostedPartition) -> None:
        """A client fetches from this follower: the leader should send each high watermark at once
        (KIP-392).
        """
        now_ms = self.clock.monotonic_ms()
        is_first = not hosted.is_read_by_clients(now_ms)
        hosted.clients_read_at_ms = now_ms
        if is_first:
            self.listeners.first_reader(hosted)

    def read(
        self, hosted: HostedPartition, offset: int, *, max_bytes: int, end_offset: int, has_minimum_one_batch: bool
    ) -> LogSlice:
        """Batches from `offset` up to `end_offset`; the caller releases the slice. PartitionFailure
        says why not.
        """
        hosted.metrics.fetch_count += 1
        try:
            return hosted.log.read(
                offset, max_bytes=max_bytes, end_offset=end_offset, has_minimum_one_batch=has_minimum_one_batch
            )
        except (OffsetOutOfRange, StorageError) as error:
            hosted.metrics.failed_fetch += 1
            if isinstance(error, StorageError):
                self.logs.note_failure(error)
            raise failure_of(error) from error


def _throttle(settings: BrokerSettings, bytes_per_second_max: int) -> ReplicationThrottle:
    return ReplicationThrottle(
        samples=settings.throttle_window_count,
        window_ms=1000 * settings.throttle_window_s,
        bytes_per_second_max=bytes_per_second_max,
    )
