"""Follows images: hosts the replicas that they assign to this broker, changes their roles, and
deletes them.

`apply` yields to the event loop regularly, because an image may have thousands of partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.image_difference import ImageChange
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metrics import BrokerMetrics
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import TURN_MS_MAX, HostedPartitions
from broker.replication.role_changes import RoleChanges
from broker.replication.role_lines import RoleLines
from broker.replication.standbys import Standbys
from broker.replication.topic_roles import TopicRole, role_of_topic
from broker.settings.config import BrokerSettings
from broker.settings.core.topic_configs import LogConfig
from runtime.logs import get_logger, state_change_logger
from wire.control import broker_pb2 as pb
from wire.rules.topic_config_kinds import InvalidTopicConfig

log = get_logger(__name__)
state_change = state_change_logger()


class AssignedReplicas:
    """The replicas that images assign to this broker."""

    def __init__(
        self, settings: BrokerSettings, partitions: HostedPartitions, standbys: Standbys, metrics: BrokerMetrics
    ) -> None:
        self._node_id = settings.node_id
        self._broker_properties: Mapping[str, str] = settings.properties
        self._partitions = partitions
        self._standbys = standbys
        self._metrics = metrics
        self._clock = partitions.clock
        self._logs = partitions.logs
        self._role_lines = RoleLines()
        self._role_changes = RoleChanges(partitions, standbys, self._role_lines)
        self._configs: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    async def apply(self, before: ClusterImage, image: ClusterImage, change: ImageChange) -> list[pb.PartitionFailure]:
        """Apply the changes; return the partitions for which that failed, with the error code."""
        known_offline = set(self._partitions.offline)
        for deleted in change.deleted:
            # deletions first: a topic created again under the same name needs the directory's name
            await self._remove_topic(
                deleted.name,
                is_copy=before.role_of_topic(deleted.name) is LinkRole.PASSIVE,
                is_named=deleted.topic_id in image.deleted_ids,
            )
        # before a whole image, an unknown topic may just not have been listed yet
        if image.is_complete and (not before.is_complete or before.quarantined - image.quarantined):
            self._remove_strays(image)
        if image.full_version != before.full_version:
            await self._leave_unassigned(image, change)
        # before a log is created or written under this registration: what follows is newer than the
        # removals in this image
        await self._logs.note_registration(image.broker_epoch)
        # In threads, so that `open_or_create` below need not block the loop for old names. Not for
        # logs that are there: a raise changes thousands of partitions while writers wait.
        new = [
            topic
            for topic in change.changed
            if before.topics.get(topic.name) is not topic
            and not self._role_changes.are_hosted(topic, node_id=image.node_id)
        ]
        await self._logs.make_way(new, node_id=image.node_id)
        failures: list[pb.PartitionFailure] = []
        turn_began_ms = self._clock.monotonic_ms()
        for topic in change.changed:
            config, role = self.log_config(topic), role_of_topic(image, topic.name)
            partitions, position = tuple(topic.partitions.values()), 0
            while position < len(partitions):
                try:
                    position = self._role_changes.change_many(
                        topic.name,
                        partitions,
                        first=position,
                        node_id=image.node_id,
                        config=config,
                        role=role,
                        until_ms=turn_began_ms + TURN_MS_MAX,
                    )
                    is_turn_over = self._clock.monotonic_ms() - turn_began_ms > TURN_MS_MAX
                    if not is_turn_over and position < len(partitions):
                        self._take(image, topic, partitions[position], config, role)
                        position += 1
                except StorageError as error:
                    failures.append(self._failed(topic, partitions[self._role_changes.position], error))
                    position = self._role_changes.position + 1
                if self._clock.monotonic_ms() - turn_began_ms > TURN_MS_MAX:
                    self._role_lines.write()
                    await asyncio.sleep(0)
                    turn_began_ms = self._clock.monotonic_ms()
            self._role_lines.end_topic()
        self._role_lines.write()
        if self._partitions.offline != known_offline:
            self._partitions.listeners.offline_changed()
        return failures

    def _failed(self, topic: TopicImage, partition: PartitionImage, error: StorageError) -> pb.PartitionFailure:
        """The report of a replica whose log failed: the controller elects another one, and the
        image is not refused for one partition.
        """
        self._logs.note_failure(error)
        # noted before the report: requests get a storage error, not an unknown partition
        self._partitions.offline.add((topic.name, partition.index))
        log.warning("partition could not be opened", topic=topic.name, partition=partition.index, reason=str(error))
        return pb.PartitionFailure(
            topic=topic.name, partition=partition.index, error_code=ErrorCode.kafka_storage_error
        )

    def _remove_strays(self, image: ClusterImage) -> None:
        """Remove logs found at the start whose topics were deleted while this broker was down; logs
        of topics in quarantine are kept.
        """
        known = {topic.name: topic.topic_id for topic in image.topics.values()}
        for stray in self._logs.strays(known, spared=image.quarantined):
            if stray.topic_id in image.deleted_ids:
                self._logs.delete(stray)
                state_change.info("deleted the log of a deleted topic", topic=stray.topic, partition=stray.partition)
            else:
                self._set_aside(stray)

    def _set_aside(self, unknown: PartitionLog) -> None:
        """Keep the log of a partition that the controller neither assigns to this broker nor names
        as deleted or removed: ZooKeeper may have lost its data, or have older data.
        """
        self._logs.set_aside(unknown)
        state_change.warning(
            "log that is not assigned here set aside", topic=unknown.topic, partition=unknown.partition
        )

    async def _leave_unassigned(self, image: ClusterImage, change: ImageChange) -> None:
        """Remove the logs of all partitions that are not assigned to this broker."""
        turn_began_ms = self._clock.monotonic_ms()
        for topic in change.changed:
            for partition in topic.partitions.values():
                if image.node_id not in partition.replicas:
                    self._leave(image, topic, partition.index)
            if self._clock.monotonic_ms() - turn_began_ms > TURN_MS_MAX:
                await asyncio.sleep(0)
                turn_began_ms = self._clock.monotonic_ms()

    def _leave(self, image: ClusterImage, topic: TopicImage, index: int) -> None:
        key = (topic.name, index)
        self._partitions.offline.discard(key)
        left = self._logs.get(*key)
        handled = None if left is None else self._logs.registration_of(left)
        is_named = image.must_delete_replica(topic.topic_id, index, handled_registration=handled)
        if (hosted := self._partitions.hosted.get(key)) is not None:
            self._delete(hosted, is_named=is_named)
        elif left is not None and is_named:  # the partition moved while this broker was away
            self._logs.delete(left)
            state_change.info("deleted the log of a reassigned partition", topic=topic.name, partition=index)
        elif left is not None:
            self._set_aside(left)

    def log_config(self, topic: TopicImage) -> LogConfig:
        """The topic's effective config here; an override that this broker does not accept is
        ignored. The same object while nothing changes, so that partitions need no comparison.
        """
        known = self._configs.get(topic.name)
        if known is not None and known[0] == topic.configs:
            return known[1]
        found = self._effective_config(topic)
        self._configs[topic.name] = topic.configs, found
        return found

    def _effective_config(self, topic: TopicImage) -> LogConfig:
        overrides = dict(topic.configs)
        while True:
            try:
                return LogConfig.from_topic_configs(self._broker_properties, overrides)
            except InvalidTopicConfig as error:
                if error.key not in overrides:
                    raise
                log.warning("invalid topic config is ignored", topic=topic.name, key=error.key, value=error.value)
                # one bad override, stored by an older version, must not take the topic offline
                del overrides[error.key]

    def apply_broker_properties(self, properties: Mapping[str, str], image: ClusterImage) -> None:
        """Apply the site-wide counterparts of topic configs at once."""
        self._broker_properties = properties
        self._configs.clear()
        configs = {topic.name: self.log_config(topic) for topic in image.topics.values()}
        for hosted in self._partitions:
            config = configs.get(hosted.topic)
            if config is not None:
                self._partitions.act(hosted, hosted.apply_config(config))

    def _take(
        self, image: ClusterImage, topic: TopicImage, partition: PartitionImage, config: LogConfig, role: TopicRole
    ) -> None:
        key = (topic.name, partition.index)
        hosted = self._partitions.hosted.get(key)
        if image.node_id not in partition.replicas:
            self._leave(image, topic, partition.index)
            return
        if hosted is None:
            hosted = self._host(topic, partition, config)
        if hosted.config is not config:
            self._partitions.act(hosted, hosted.apply_config(config))
        self._role_changes.change(hosted, partition, role, now_ms=self._clock.monotonic_ms())

    def _host(self, topic: TopicImage, partition: PartitionImage, config: LogConfig) -> HostedPartition:
        index = partition.index
        # a partition that has had a leader has a log somewhere: an empty one instead would claim
        # that nothing was ever written
        opened = self._logs.open_or_create(
            topic.name, index, topic_id=topic.topic_id, config=config, is_new=partition.leader_epoch == 0
        )
        state = Partition(
            node_id=self._node_id,
            insync_replicas_min=config.insync_replicas_min,
            log_end_offset=opened.log_end_offset,
            # a checkpoint may be ahead of a log that recovery truncated
            high_watermark=max(opened.log_start_offset, min(opened.high_watermark, opened.log_end_offset)),
        )
        hosted = HostedPartition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            log=opened,
            state=state,
            config=config,
            metrics=self._metrics.topic(topic.name),
        )
        self._partitions.hosted[hosted.key] = hosted
        self._partitions.offline.discard(hosted.key)
        return hosted

    def apply_state(self, image: ClusterImage, hosted: HostedPartition, partition: PartitionImage) -> None:
        """Apply the controller's answer about one partition, before the image with the same content
        arrives.
        """
        if image.node_id in partition.replicas:
            role = role_of_topic(image, hosted.topic)
            self._role_changes.change(hosted, partition, role, now_ms=self._clock.monotonic_ms())
            self._role_lines.end_topic()
            self._role_lines.write()

    async def _remove_topic(self, topic: str, *, is_copy: bool, is_named: bool) -> None:
        self._partitions.offline = {key for key in self._partitions.offline if key[0] != topic}
        for key in [key for key in self._partitions.hosted if key[0] == topic]:
            if (hosted := self._partitions.hosted.get(key)) is not None:
                # before `_delete`: the files are found beside the log's folder
                self._partitions.cuts.forget(hosted.log, is_copy=is_copy or not is_named)
                self._delete(hosted, is_named=is_named)
            await asyncio.sleep(0)
        self._configs.pop(topic, None)
        self._metrics.forget_topic(topic)

    def _delete(self, hosted: HostedPartition, *, is_named: bool = True) -> None:
        del self._partitions.hosted[hosted.key]
        # requests that hold this object while they wait get an answer that makes clients refresh
        # metadata
        hosted.write_error = hosted.read_error = ErrorCode.unknown_topic_or_partition
        if is_named:
            self._logs.delete(hosted.log)
        else:
            self._set_aside(hosted.log)
        self._standbys.forget(hosted)
        state_change.info("partition deleted", topic=hosted.topic, partition=hosted.index)
        # last: requests that wake up must not find the partition here
        self._partitions.act(hosted, hosted.state.leave())
