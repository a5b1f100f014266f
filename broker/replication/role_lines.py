"""The lines of the state-change log about the roles of partitions.

Partitions of one topic that get the same leader, leader epoch and role share a line: a move of a
link changes the roles of thousands of partitions while writers wait, and a line for each of them
would take longer than the changes.
"""

from __future__ import annotations

from broker.metadata.core.topic_images import PartitionImage
from broker.replication.hosted_partition import HostedPartition
from runtime.logs import STATE_CHANGE, LogLines


class RoleLines:
    """Collects changes of roles: those of one topic, and lines about earlier topics."""

    def __init__(self) -> None:
        self._lines = LogLines(STATE_CHANGE, "partitions")
        self._ends: dict[tuple[str, int, int, str], dict[int, int]] = {}

    def add(self, hosted: HostedPartition, partition: PartitionImage, role: str) -> None:
        """The partition has this leader and role; its log ends where it ends at this moment."""
        group = hosted.topic, partition.leader, partition.leader_epoch, role
        self._ends.setdefault(group, {})[hosted.index] = hosted.log.log_end_offset

    def end_topic(self) -> None:
        """Every change of the topic was added."""
        for (topic, leader, leader_epoch, role), ends in self._ends.items():
            self._lines.add(
                topic=topic,
                leader=leader,
                leader_epoch=leader_epoch,
                role=role,
                partitions=list(ends),
                log_end_offsets=list(ends.values()),
            )
        self._ends.clear()

    def write(self) -> None:
        """Write the lines about the topics that have ended."""
        self._lines.write()
