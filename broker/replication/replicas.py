"""The partitions of this broker: applied from images, appended to, read from, described.

Owns every `HostedPartition` and its log. `apply` turns an image change into created logs, changed
roles and deleted logs; it yields to the event loop regularly, because an image may have thousands
of partitions. Appends and reads are plain calls: what they checked stays true until they return.
Requests that wait for a partition are notified through the purgatories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.directories.log_store import DirectoryFailure, LogStore
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.log.intake import AppendInfo
from broker.log.log_slice import LogSlice
from broker.log.partition_log import PartitionLog
from broker.metadata.core.access import CONSUMER_REPLICA_ID, read_error, write_error
from broker.metadata.core.cluster_image import ClusterImage, ImageChange, LinkRole, PartitionImage, TopicImage
from broker.metrics import BrokerMetrics
from broker.replication.core.lag_bounded_hold import LagBoundedHold
from broker.replication.core.partition import LeadershipChange, Partition
from broker.replication.core.replication_throttle import ReplicationThrottle
from broker.replication.core.retention_holds import StandbyEnds
from broker.replication.core.standby_hold import StandbyHold
from broker.replication.follower_fetches import FollowerFetches
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.purgatory import Purgatory
from broker.replication.quarantine import Entry
from broker.replication.sequence_gaps import SequenceGaps
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.config import BrokerSettings
from broker.settings.core.topic_configs import LogConfig
from runtime.clock import Clock
from runtime.logs import STATE_CHANGE, LogLines, get_logger, state_change_logger
from wire.batches.record_batch import Buffer, InvalidBatch
from wire.control import broker_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import SyncPolicy, sync_policy
from wire.rules.topic_configs import InvalidTopicConfig

log = get_logger(__name__)
state_change = state_change_logger()

TURN_MS_MAX: Final = 2.0
"""Time (ms) for which `apply` may occupy the event loop without a break."""

PartitionKey = tuple[str, int]


def _ignore(*_: object) -> None:
    """No part listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaListeners:
    """Parts of the broker that act on what happens to partitions here."""

    follower_outside: Callable[[HostedPartition, int], None] = _ignore
    """Called after a fetch of a follower that is not in sync (`isr_proposals.py`)."""
    first_reader: Callable[[HostedPartition], None] = _ignore
    """Called when a client begins to read from a follower here (`replica_fetchers.py`)."""
    offline_changed: Callable[[], None] = _ignore
    """Called when a log directory fails, or an offline replica is no longer assigned here
    (`offline_reports.py`).
    """


class Replicas:
    """The partitions that this broker holds."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        logs: LogStore,
        metrics: BrokerMetrics,
        *,
        fetches: Purgatory,
        follower_fetches: FollowerFetches,
        mirror_fetches: Purgatory,
        produces: Purgatory,
        deletes: Purgatory,
        cuts: TruncatedRecords,
        listeners: ReplicaListeners | None = None,
    ) -> None:
        self._settings = settings
        self._broker_properties: Mapping[str, str] = settings.properties
        self._clock = clock
        self._logs = logs
        self._metrics = metrics
        self._hosted: dict[PartitionKey, HostedPartition] = {}
        self._held: dict[PartitionKey, HostedPartition] = {}
        self._marked_links: set[str] = set()
        self._role_changes = LogLines(STATE_CHANGE, "partition")
        self.degradations = 0
        self.standby_ends = StandbyEnds()
        self._listeners = listeners or ReplicaListeners()
        self.fetches = fetches
        self.follower_fetches = follower_fetches
        self._sequence_gaps = SequenceGaps(follower_fetches)
        self.mirror_fetches = mirror_fetches
        self.produces = produces
        self.deletes = deletes
        self.cuts = cuts
        self.offline: set[PartitionKey] = set()
        """Partitions that the image puts here and whose log directory is lost, or whose log cannot
        be opened.
        """
        self.leader_throttle = _throttle(settings, settings.leader_throttle_bytes_per_second)
        self.follower_throttle = _throttle(settings, settings.follower_throttle_bytes_per_second)
        logs.on_failure(self._lose)
        logs.on_moved = self._replace_log

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(tuple(self._hosted.values()))

    def __len__(self) -> int:
        return len(self._hosted)

    def find(self, topic: str, index: int) -> HostedPartition | None:
        """The partition, None when it is not on this broker."""
        return self._hosted.get((topic, index))

    def get(self, image: ClusterImage, topic: str, index: int) -> HostedPartition:
        """The partition; PartitionFailure says whether it exists elsewhere or not at all."""
        hosted = self._hosted.get((topic, index))
        if hosted is not None:
            return hosted
        routed = image.routed_topic(topic)
        if routed is None or index not in routed.topic.partitions:
            raise PartitionFailure(ErrorCode.unknown_topic_or_partition)
        partition = image.partition(topic, index)
        if self._logs.is_offline(topic, index):
            raise PartitionFailure(ErrorCode.kafka_storage_error, "the log directory of this partition is offline")
        if partition is not None and partition.leader == image.node_id:
            raise PartitionFailure(ErrorCode.kafka_storage_error, "the log of this partition could not be opened")
        raise PartitionFailure(ErrorCode.not_leader_or_follower)

    # --- images

    async def apply(self, before: ClusterImage, image: ClusterImage, change: ImageChange) -> list[pb.PartitionFailure]:
        """Take over what changed; partitions that could not be taken over are returned with the
        reason's code.
        """
        known_offline = set(self.offline)
        for deleted in change.deleted:
            await self._delete_topic(deleted.name, is_copy=before.role_of_topic(deleted.name) is LinkRole.PASSIVE)
        if image.is_complete and (not before.is_complete or before.quarantined - image.quarantined):
            self._delete_strays(image)
        await self._logs.make_way(change.changed, node_id=image.node_id)
        failures: list[pb.PartitionFailure] = []
        turn_began_ms = self._clock.monotonic_ms()
        for topic in change.changed:
            config = self.log_config(topic)
            for partition in topic.partitions.values():
                try:
                    self._take(image, topic, partition, config)
                except StorageError as error:
                    self._logs.note_failure(error)
                    self.offline.add((topic.name, partition.index))
                    log.warning(
                        "partition could not be opened", topic=topic.name, partition=partition.index, reason=str(error)
                    )
                    failures.append(
                        pb.PartitionFailure(
                            topic=topic.name, partition=partition.index, error_code=ErrorCode.kafka_storage_error
                        )
                    )
                if self._clock.monotonic_ms() - turn_began_ms > TURN_MS_MAX:
                    self._role_changes.write()
                    await asyncio.sleep(0)
                    turn_began_ms = self._clock.monotonic_ms()
        self._role_changes.write()
        if self.offline != known_offline:
            self._report_offline()
        return failures

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Deletions wait for living followers, and others live now."""
        if before.brokers.keys() != after.brokers.keys():
            for hosted in self:
                self.deletes.notify(hosted.key)

    def _report_offline(self) -> None:
        self._listeners.offline_changed()

    def _delete_strays(self, image: ClusterImage) -> None:
        """Logs found at start whose topics were deleted while this broker was away; of topics in
        quarantine that is not known.
        """
        known = {topic.name: topic.topic_id for topic in image.topics.values()}
        for stray in self._logs.delete_strays(known, spared=image.quarantined):
            state_change.info("deleted the log of a deleted topic", topic=stray.topic, partition=stray.partition)

    def log_config(self, topic: TopicImage) -> LogConfig:
        """The topic's config as it is in force here; an override that this broker does not accept
        is left out.
        """
        overrides = dict(topic.configs)
        while True:
            try:
                return LogConfig.from_topic_configs(self._broker_properties, overrides)
            except InvalidTopicConfig as error:
                if error.key not in overrides:
                    raise
                log.warning("invalid topic config is ignored", topic=topic.name, key=error.key, value=error.value)
                del overrides[error.key]

    def apply_broker_properties(self, properties: Mapping[str, str], image: ClusterImage) -> None:
        """The site-wide counterparts of topic configs are these now: what follows from them is in
        force at once.
        """
        self._broker_properties = properties
        configs = {topic.name: self.log_config(topic) for topic in image.topics.values()}
        for hosted in self:
            config = configs.get(hosted.topic)
            if config is not None and hosted.apply_config(config):
                self.refresh_high_watermark(hosted)

    def apply_throttles(self, settings: BrokerSettings) -> None:
        """These bounds of replication are in force now."""
        self.leader_throttle.bytes_per_second_max = settings.leader_throttle_bytes_per_second
        self.follower_throttle.bytes_per_second_max = settings.follower_throttle_bytes_per_second

    def _take(self, image: ClusterImage, topic: TopicImage, partition: PartitionImage, config: LogConfig) -> None:
        key = (topic.name, partition.index)
        hosted = self._hosted.get(key)
        if image.node_id not in partition.replicas:
            self.offline.discard(key)
            if hosted is not None:
                self._delete(hosted)
            elif (left := self._logs.get(*key)) is not None:
                # moved to other brokers while this one was away
                self._logs.delete(left)
                state_change.info("deleted the log of a reassigned partition", topic=key[0], partition=key[1])
            return
        if hosted is None:
            hosted = self._host(topic, partition, config)
        hosted.apply_config(config)
        self._change_role(image, hosted, partition)

    def _host(self, topic: TopicImage, partition: PartitionImage, config: LogConfig) -> HostedPartition:
        index = partition.index
        # one that has had a leader before has a log somewhere
        opened = self._logs.open_or_create(
            topic.name, index, topic_id=topic.topic_id, config=config, is_new=partition.leader_epoch == 0
        )
        state = Partition(node_id=self._settings.node_id, insync_replicas_min=config.insync_replicas_min)
        state.log_end_offset = opened.log_end_offset
        state.high_watermark = max(opened.log_start_offset, min(opened.high_watermark, opened.log_end_offset))
        hosted = HostedPartition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            log=opened,
            state=state,
            config=config,
            metrics=self._metrics.topic(topic.name),
        )
        self._hosted[hosted.key] = hosted
        self.offline.discard(hosted.key)
        return hosted

    def _change_role(self, image: ClusterImage, hosted: HostedPartition, partition: PartitionImage) -> None:
        link = image.link_of(hosted.topic)
        was_writable = hosted.state.is_leader and hosted.write_error is ErrorCode.none
        isr, former_read_error = hosted.state.isr, hosted.read_error
        change = hosted.state.change(partition, now_ms=self._clock.monotonic_ms())
        if change is LeadershipChange.STALE:
            return
        hosted.write_error = _write_error(image, hosted, link)
        hosted.read_error = read_error(image, hosted.topic, replica_id=CONSUMER_REPLICA_ID)
        if change is LeadershipChange.BECAME_FOLLOWER or image.role_in(link) is LinkRole.PASSIVE:
            hosted.begin_following()
        self._wait_for_standby(image, hosted, link)
        is_writable = hosted.state.is_leader and hosted.write_error is ErrorCode.none
        if is_writable and (change is LeadershipChange.BECAME_LEADER or not was_writable):
            hosted.begin_writing(link, now_ms=self._clock.monotonic_ms())
        if change is not LeadershipChange.UNCHANGED:
            hosted.guards.withdraw_all()
        if hosted.state.isr != isr:
            self.follower_fetches.mark(hosted.key)
        self.refresh_high_watermark(hosted)
        self.deletes.notify(hosted.key)  # a replica that was waited for may be none any more
        if hosted.read_error is not former_read_error:
            self.fetches.notify(hosted.key)
        if change is not LeadershipChange.UNCHANGED or is_writable is not was_writable:
            self._role_changes.add(
                topic=hosted.topic,
                partition=hosted.index,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                role=image.role_in(link).value,
                log_end_offset=hosted.log.log_end_offset,
            )
            self.notify_all(hosted)

    def apply_state(self, image: ClusterImage, hosted: HostedPartition, partition: PartitionImage) -> None:
        """Take what the controller answered about one partition, ahead of the image that will say
        the same.
        """
        if image.node_id in partition.replicas:
            self._change_role(image, hosted, partition)
            self._role_changes.write()

    def notify_all(self, hosted: HostedPartition) -> None:
        """Every request that waits for the partition checks its condition again."""
        self.fetches.notify(hosted.key)
        self.follower_fetches.notify(hosted.key)
        self.mirror_fetches.notify(hosted.key)
        self.produces.notify(hosted.key)
        self.deletes.notify(hosted.key)

    async def _delete_topic(self, topic: str, *, is_copy: bool) -> None:
        self.offline = {key for key in self.offline if key[0] != topic}
        for key in [key for key in self._hosted if key[0] == topic]:
            if (hosted := self._hosted.get(key)) is not None:
                self.cuts.forget(hosted.log, is_copy=is_copy)
                self._delete(hosted)
            await asyncio.sleep(0)
        self._metrics.forget_topic(topic)

    def _delete(self, hosted: HostedPartition) -> None:
        del self._hosted[hosted.key]
        hosted.write_error = hosted.read_error = ErrorCode.unknown_topic_or_partition
        self._logs.delete(hosted.log)
        hosted.state.leave()
        self._held.pop(hosted.key, None)
        self.standby_ends.forget(hosted.key)
        state_change.info("partition deleted", topic=hosted.topic, partition=hosted.index)
        self.notify_all(hosted)

    # --- log directories

    def quarantined(self, link: str) -> list[Entry]:
        """The quarantine entries of the link's copies here. Reads disks: call it in a thread.
        Raises OSError.
        """
        kept = self.cuts.quarantine.entries([directory.path for directory in self._logs.directories])
        return [entry for entry in kept if entry.link == link]

    def storage_failed(self, error: StorageError) -> None:
        """A caller met this error in a log: when it was the disk, its log directory goes offline
        with all its partitions.
        """
        self._logs.note_failure(error)

    def _lose(self, failure: DirectoryFailure) -> None:
        """A log directory went offline: its partitions answer with a storage error from now on."""
        state_change.error(
            "log directory offline", path=failure.path, partitions=len(failure.partitions), reason=failure.reason
        )
        for key in failure.partitions:
            hosted = self._hosted.pop(key, None)
            if hosted is not None:
                self._held.pop(key, None)
                hosted.write_error = hosted.read_error = ErrorCode.kafka_storage_error
                hosted.state.leave()
                self.offline.add(hosted.key)
                self.notify_all(hosted)
        self._report_offline()

    def _replace_log(self, moved: PartitionLog) -> None:
        """The partition's log is in another directory now; both have the same batches."""
        hosted = self._hosted.get((moved.topic, moved.partition))
        if hosted is not None:
            hosted.log = moved
            state_change.info("log moved", topic=moved.topic, partition=moved.partition, directory=moved.directory)

    def follower_lags(self) -> dict[PartitionKey, int]:
        """Records that each follower here lacks, for the metrics (called from their thread)."""
        return {hosted.key: hosted.leader_lag for hosted in self if hosted.state.is_follower}

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
        hosted.settle(self._clock.monotonic_ms())
        try:
            info = hosted.log.append_as_leader(
                records,
                leader_epoch=hosted.state.leader_epoch,
                now_ms=self._clock.now_ms(),
                is_from_client=is_from_client,
                may_begin_transaction=may_begin_transaction,
            )
        except (BatchRejected, InvalidBatch, StorageError) as error:
            hosted.metrics.count_refused(error, len(records))
            if isinstance(error, StorageError):
                self._logs.note_failure(error)
            raise failure_of(self._sequence_gaps.judged(hosted, error)) from error
        if not info.is_duplicate:
            hosted.metrics.messages_in += info.record_count
            hosted.metrics.bytes_in += len(records)
            if is_from_client and hosted.log.needs_flush:
                hosted.state.await_flush(info.first_offset, info.last_offset + 1)
            self.record_growth(hosted, len(records))
        return info

    def note_flushed(self, hosted: HostedPartition, *, is_done: bool) -> None:
        """A flush that an append asked for has ended, or was given up."""
        hosted.state.record_flush(hosted.log.recovery_point, is_done=is_done)
        self.refresh_high_watermark(hosted)

    def record_growth(self, hosted: HostedPartition, grown_bytes: int) -> None:
        """The log has grown: followers can have it, and without followers in sync it is safe at
        once.
        """
        state, high_watermark = hosted.state, hosted.state.high_watermark
        safe_end = hosted.safe_end if self.mirror_fetches.is_awaited(hosted.key) else None
        self.follower_fetches.notify(hosted.key, grown_bytes)
        was_all_visible = high_watermark == state.log_end_offset
        if state.record_append(hosted.log.log_end_offset):
            self.follow_high_watermark(hosted, high_watermark, grown_bytes if was_all_visible else None)
        if safe_end is not None:
            self._report_to_mirror(hosted, safe_end)

    def record_fetch(
        self, hosted: HostedPartition, replica: int, offset: int, *, broker_epoch: int, log_start_offset: int
    ) -> None:
        """A follower asked for `offset`: move the high watermark, and propose the follower for the
        ISR when it has caught up.
        """
        state = hosted.state
        high_watermark, safe_end = state.high_watermark, hosted.safe_end
        if state.record_fetch(
            replica,
            offset,
            now_ms=self._clock.monotonic_ms(),
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
        ):
            self.follow_high_watermark(hosted, high_watermark)
        self._report_to_mirror(hosted, safe_end)
        if replica not in state.isr:
            self._listeners.follower_outside(hosted, replica)
        self.deletes.notify(hosted.key)

    def refresh_high_watermark(self, hosted: HostedPartition) -> None:
        """Compute the high watermark again after a change of its inputs."""
        high_watermark, safe_end = hosted.state.high_watermark, hosted.safe_end
        if hosted.state.refresh_high_watermark():
            self.follow_high_watermark(hosted, high_watermark)
        self._report_to_mirror(hosted, safe_end)

    def advance_log_start(self, hosted: HostedPartition, offset: int) -> None:
        """Records below `offset` are deleted; followers get this at once."""
        hosted.log.advance_log_start_offset(offset)
        self.follower_fetches.notify(hosted.key)

    def _report_to_mirror(self, hosted: HostedPartition, former: int) -> None:
        """More than up to `former` may be mirrored now."""
        reached = hosted.safe_end
        if reached > former and self.mirror_fetches.is_awaited(hosted.key):
            grown_bytes = hosted.log.bytes_between(max(former, hosted.log.log_start_offset), reached)
            self.mirror_fetches.notify(hosted.key, max(grown_bytes, 1))

    # --- the standby of a sync link

    def _wait_for_standby(self, image: ClusterImage, hosted: HostedPartition, link: LinkRecord | None) -> None:
        """Hold acknowledgements back, or no longer, as the link and this site's part in it say."""
        policy = SyncPolicy.NONE if link is None else sync_policy(link)
        role, has_hold = image.role_in(link), hosted.state.hold is not None
        is_without_permit = role is LinkRole.UNCONFIRMED and has_hold
        is_source = hosted.state.is_leader and (role in (LinkRole.ACTIVE, LinkRole.FENCED) or is_without_permit)
        if link is None or policy is SyncPolicy.NONE or not is_source:
            hosted.state.wait_for_standby(None)
            self._held.pop(hosted.key, None)
            return
        # without a permit another site may be active: nothing more becomes visible here alone
        may_degrade, timeout_ms = policy is not SyncPolicy.BLOCK and not is_without_permit, link.sync_timeout_ms
        hold = hosted.state.hold
        is_bound = policy is SyncPolicy.BOUND
        if hold is not None and isinstance(hold, LagBoundedHold) == is_bound:
            hold.follow_policy(may_degrade=may_degrade, timeout_ms=timeout_ms)
            if isinstance(hold, LagBoundedHold):
                hold.bound_ms = link.sync_bound_ms
        elif is_bound:
            acknowledged = -1 if hold is None else hold.acknowledged
            hold = LagBoundedHold(
                may_degrade=may_degrade,
                timeout_ms=timeout_ms,
                progressed_at_ms=self._clock.monotonic_ms(),
                acknowledged=acknowledged,
                bound_ms=link.sync_bound_ms,
            )
            hosted.state.wait_for_standby(hold)
            self._held[hosted.key] = hosted
        else:
            now_ms = self._clock.monotonic_ms()
            hold = (
                StandbyHold.released(may_degrade=may_degrade, timeout_ms=timeout_ms, now_ms=now_ms)
                if link.sync_policy_to_restore
                else StandbyHold(may_degrade=may_degrade, timeout_ms=timeout_ms, progressed_at_ms=now_ms)
            )
            hosted.state.wait_for_standby(hold)
            self._held[hosted.key] = hosted
        hold.needs_mark = bool(link.lease_ms)
        hold.is_marked = hold.is_marked or link.name in self._marked_links

    def mark_out_of_sync(self, image: ClusterImage, link: str, *, is_marked: bool) -> None:
        """Set or clear the arbiter's mark for the link: while it is set, acknowledgements need not
        wait for a silent standby.
        """
        (self._marked_links.add if is_marked else self._marked_links.discard)(link)
        for _, hold in self._holds_of(image, link):
            hold.is_marked = is_marked

    def wants_mark(self, image: ClusterImage, link: str) -> bool:
        """True while acknowledgements of the link wait for a mark of `mark_out_of_sync` alone."""
        return any(hold.wants_mark for _, hold in self._holds_of(image, link))

    def is_standby_behind(self, image: ClusterImage, link: str) -> bool:
        """True while the link's standby lacks something that was shown here, or may lack it."""
        return any(hold.is_behind(hosted.state.high_watermark) for hosted, hold in self._holds_of(image, link))

    def _holds_of(self, image: ClusterImage, link: str) -> list[tuple[HostedPartition, StandbyHold]]:
        held = [(one, one.state.hold) for one in tuple(self._held.values()) if link in image.links_of(one.topic)]
        return [(hosted, hold) for hosted, hold in held if hold is not None]

    def record_standby(self, image: ClusterImage, key: PartitionKey, acknowledged: int, *, link: str) -> ErrorCode:
        """A mirror of the link says that the standby has everything below `acknowledged`; why that
        is refused, or `none`.
        """
        hosted = self._hosted.get(key)
        if hosted is None or not hosted.state.is_leader:
            return ErrorCode.not_leader_or_follower
        carrier = image.link_of(hosted.topic)
        if carrier is None or link not in image.links_of(hosted.topic) or acknowledged > hosted.safe_end:
            return ErrorCode.invalid_request
        now_ms = self._clock.monotonic_ms()
        self.standby_ends.note(
            key, acknowledged, image.links[link], high_watermark=hosted.state.high_watermark, now_ms=now_ms
        )
        if carrier.name != link:
            return ErrorCode.none
        hold, high_watermark = hosted.state.hold, hosted.state.high_watermark
        was_degraded = hold is not None and hold.is_degraded
        if hosted.state.record_standby(acknowledged, now_ms=now_ms):
            self.follow_high_watermark(hosted, high_watermark)
        if hold is not None and was_degraded and not hold.is_degraded:
            state_change.info("standby has caught up", topic=key[0], partition=key[1], offset=acknowledged)
        return ErrorCode.none

    def check_standbys(self) -> None:
        """Give up waiting for standbys that have been silent for longer than their links allow."""
        now_ms = self._clock.monotonic_ms()
        for hosted in tuple(self._held.values()):
            high_watermark = hosted.state.high_watermark
            if hosted.state.check_standby(now_ms=now_ms):
                self.degradations += 1
                state_change.warning(
                    "acknowledgements no longer wait for the standby",
                    topic=hosted.topic,
                    partition=hosted.index,
                    acknowledged=hosted.state.hold.acknowledged if hosted.state.hold is not None else -1,
                    high_watermark=high_watermark,
                )
                self.refresh_high_watermark(hosted)
            elif isinstance(hosted.state.hold, LagBoundedHold):
                self.refresh_high_watermark(hosted)

    def standby_holds(self) -> list[StandbyHold]:
        """The hold of each partition led here that waits for a standby, or would if it were not
        degraded.
        """
        return [hosted.state.hold for hosted in tuple(self._held.values()) if hosted.state.hold is not None]

    def lag_bounded_holds(self) -> list[LagBoundedHold]:
        """Those of links with the sync policy `bound`."""
        return [hold for hold in self.standby_holds() if isinstance(hold, LagBoundedHold)]

    def record_client_read(self, hosted: HostedPartition) -> None:
        """A client fetches from this follower: the leader should send each high watermark at once
        (KIP-392).
        """
        now_ms = self._clock.monotonic_ms()
        is_first = not hosted.is_read_by_clients(now_ms)
        hosted.clients_read_at_ms = now_ms
        if is_first:
            self._listeners.first_reader(hosted)

    def follow_high_watermark(self, hosted: HostedPartition, former: int, grown_bytes: int | None = None) -> None:
        """The high watermark moved up from `former`: readers see more (`grown_bytes` if known),
        producers have their answer.
        """
        reached = hosted.state.high_watermark
        hosted.log.advance_high_watermark(reached)
        self.follower_fetches.high_watermark_moved(hosted.key)
        if self.fetches.is_awaited(hosted.key):
            if grown_bytes is None:
                grown_bytes = hosted.log.bytes_between(max(former, hosted.log.log_start_offset), reached)
            self.fetches.notify(hosted.key, max(grown_bytes, 1))
        self.produces.notify(hosted.key)

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
                self._logs.note_failure(error)
            raise failure_of(error) from error

    def report_log_start(self, log: PartitionLog) -> None:
        """Old segments were deleted: followers get the new log start with their next answer."""
        hosted = self._hosted.get((log.topic, log.partition))
        if hosted is not None:
            self.follower_fetches.mark(hosted.key)

    # --- reports

    def describe(self, image: ClusterImage) -> Iterable[pb.PartitionDescription]:
        """Offsets, epochs and roles of the partitions led here."""
        for hosted in self:
            if not hosted.state.is_leader:
                continue
            link, seen = image.link_of(hosted.topic), hosted.source_of_copy
            yield pb.PartitionDescription(
                topic=hosted.topic,
                topic_id=hosted.topic_id,
                partition=hosted.index,
                leader_epoch=hosted.state.leader_epoch,
                log_start_offset=hosted.log.log_start_offset,
                high_watermark=hosted.state.high_watermark,
                log_end_offset=hosted.log.log_end_offset,
                last_log_epoch=hosted.last_record_epoch,
                link=link.name if link is not None else "",
                link_epoch=link.epoch if link is not None else 0,
                is_writable=hosted.write_error is ErrorCode.none,
                source_high_watermark=seen.high_watermark,
                source_seen_at_ms=seen.seen_at_ms,
                max_timestamp_ms=hosted.log.max_timestamp_ms,
                size_bytes=hosted.log.size_bytes,
                is_degraded=hosted.state.hold is not None and hosted.state.hold.is_degraded,
                epochs=[pb.EpochStart(epoch=epoch, start_offset=start) for epoch, start in hosted.written_epochs],
            )

    def writable(self) -> Iterable[PartitionKey]:
        """The partitions led here that take clients' writes."""
        return (one.key for one in self if one.state.is_leader and one.write_error is ErrorCode.none)

    def sizes(self) -> dict[PartitionKey, tuple[int, int, int]]:
        """Size, start and end offset by partition, for the metrics (called from their thread)."""
        return {
            hosted.key: (hosted.log.size_bytes, hosted.log.log_start_offset, hosted.log.log_end_offset)
            for hosted in self
        }

    def under_replicated_count(self) -> int:
        """Partitions led here whose ISR is smaller than their replicas."""
        return sum(
            1 for hosted in self if hosted.state.is_leader and len(hosted.state.isr) < len(hosted.state.replicas)
        )

    def under_min_isr_count(self) -> int:
        """Partitions led here that refuse acks=all: fewer replicas in sync than
        min.insync.replicas.
        """
        return sum(1 for hosted in self if hosted.state.is_leader and hosted.state.spare_in_sync < 0)

    def at_min_isr_count(self) -> int:
        """Partitions led here that would refuse acks=all if one more replica were lost."""
        return sum(1 for hosted in self if hosted.state.is_leader and hosted.state.spare_in_sync == 0)

    def leader_count(self) -> int:
        """Partitions led here."""
        return sum(1 for hosted in self if hosted.state.is_leader)


def _throttle(settings: BrokerSettings, bytes_per_second_max: int) -> ReplicationThrottle:
    return ReplicationThrottle(
        samples=settings.throttle_window_count,
        window_ms=1000 * settings.throttle_window_s,
        bytes_per_second_max=bytes_per_second_max,
    )


def _write_error(image: ClusterImage, hosted: HostedPartition, link: LinkRecord | None) -> ErrorCode:
    """The error for a write, by the link's role. Nothing is written under a leader epoch that the
    former active site may have used.
    """
    if link is not None and hosted.state.leader_epoch < link.leader_epoch_floor:
        return ErrorCode.not_leader_or_follower
    return write_error(image, hosted.topic)
