"""Gives the replicas here the roles that images name. A move of a link changes thousands of roles
while writers wait, so this runs compiled.

Caller: `assigned_replicas.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import LinkRole
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.replication.core.partition import LeadershipChange
from broker.replication.core.wake_ups import Change
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.role_lines import RoleLines
from broker.replication.standbys import Standbys
from broker.replication.topic_roles import TopicRole
from broker.settings.core.topic_configs import LogConfig

CLOCK_READ_EVERY: Final = 32
"""Changes of roles for one reading of the clock, which would take a third of their time."""


class RoleChanges:
    """Changes the roles of replicas, of one or of many in their order."""

    def __init__(self, partitions: HostedPartitions, standbys: Standbys, lines: RoleLines) -> None:
        """`lines` gets each change of a leader or a role."""
        self._partitions = partitions
        self._standbys = standbys
        self._lines = lines
        # Python 3.11 calls a function for each look at a member of an enumeration
        self._no_error = ErrorCode.none
        self._not_leader = ErrorCode.not_leader_or_follower
        self._passive = LinkRole.PASSIVE
        self._stale = LeadershipChange.STALE
        self._unchanged = LeadershipChange.UNCHANGED
        self._became_leader = LeadershipChange.BECAME_LEADER
        self._became_follower = LeadershipChange.BECAME_FOLLOWER
        self.position = 0

    def change_many(
        self,
        topic: str,
        partitions: Sequence[PartitionImage],
        *,
        first: int,
        node_id: int,
        config: LogConfig,
        role: TopicRole,
        until_ms: float,
    ) -> int:
        """Change the roles of the topic's partitions in their order, from position `first` on.
        Return the position of the first one that is left: its replica is not hosted here yet, the
        image does not assign it to this broker, its config changes, or `until_ms` (monotonic) has
        passed. Raises StorageError when a replica's log fails; `position` is then its position.
        """
        hosted_here, clock, count = self._partitions.hosted, self._partitions.clock, len(partitions)
        self.position = first
        now_ms = clock.monotonic_ms()
        while self.position < count:
            partition = partitions[self.position]
            hosted = hosted_here.get((topic, partition.index))
            if hosted is None or hosted.config is not config or node_id not in partition.replicas:
                break
            self.change(hosted, partition, role, now_ms=now_ms)
            self.position += 1
            if self.position % CLOCK_READ_EVERY == 0:
                now_ms = clock.monotonic_ms()
                if now_ms > until_ms:
                    break
        return self.position

    def are_hosted(self, topic: TopicImage, *, node_id: int) -> bool:
        """True if every replica of the topic that the image assigns to this broker is hosted."""
        hosted_here, name, topic_id = self._partitions.hosted, topic.name, topic.topic_id
        for index, partition in topic.partitions.items():
            hosted = hosted_here.get((name, index))
            if (hosted is None or hosted.topic_id != topic_id) and node_id in partition.replicas:
                return False
        return True

    def change(self, hosted: HostedPartition, partition: PartitionImage, topic: TopicRole, *, now_ms: float) -> None:
        """The replica gets the controller's decision and the topic's role."""
        state, partitions = hosted.state, self._partitions
        was_writable = state.is_leader and hosted.write_error is self._no_error
        former_read_error = hosted.read_error
        had_hold = state.hold is not None
        # terms before effects: the hold must exist before the high watermark can move. Each
        # partition asks for its terms, because the arbiter may mark the link in between.
        terms = self._standbys.terms(topic.link, topic.role) if topic.has_standby_terms else None
        change, effects = state.change(partition, now_ms=now_ms, terms=terms)
        if change is self._stale:
            return
        if had_hold or state.hold is not None:
            self._standbys.note(hosted)
        is_below_floor = state.leader_epoch < topic.leader_epoch_floor
        hosted.write_error = self._not_leader if is_below_floor else topic.write_error
        hosted.read_error = topic.read_error
        hosted.is_copy = topic.role is self._passive
        if effects:
            partitions.act(hosted, effects)
        # a passive leader follows the source: it too must drop epochs without records
        if change is self._became_follower or topic.role is self._passive:
            hosted.begin_following()
        is_writable = state.is_leader and hosted.write_error is self._no_error
        if is_writable and (change is self._became_leader or not was_writable):
            hosted.begin_writing(lossy_floor=topic.lossy_floor, now_ms=now_ms)
        if change is not self._unchanged or is_writable is not was_writable:
            self._lines.add(hosted, partition, topic.role_name)
        # The effects of another leadership have woken all requests, and those look only after this
        # change. A permission to write changes nothing for requests that wait: at a fence each of
        # thousands of partitions would wake the mirror, which reads on.
        if change is self._unchanged and hosted.read_error is not former_read_error:
            partitions.changed(hosted, Change.READ_PERMISSION)
