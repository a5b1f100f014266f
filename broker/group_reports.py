"""What this broker says about the groups of a link: their committed offsets, and as of when the link's mirror had carried all.

The site agent asks, for failovers: a planned one waits until the standby has every offset, an unplanned one says how old those are that
it has. Kept in memory only; a mirror tells again after its next round.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinator import GroupCoordinator
from broker.core.cluster_image import OFFSETS_TOPIC, ClusterImage
from wire.control import broker_pb2 as pb
from wire.links import carries_group, carries_topic


class GroupReports:
    """See the module."""

    def __init__(self, image: Callable[[], ClusterImage], groups: GroupCoordinator) -> None:
        self._image = image
        self._groups = groups
        self._synced_at_ms: dict[str, int] = {}

    def note_synced(self, link: str, *, synced_at_ms: int) -> None:
        """The link's mirror has carried what the source's groups had at that time."""
        self._synced_at_ms[link] = max(synced_at_ms, self._synced_at_ms.get(link, 0))

    async def describe(self, link: str) -> pb.DescribeGroupOffsetsReply:
        """Groups that the link carries, with their offsets of topics that it carries; of an unknown link none.

        Commits that were taken before the question count: they are waited for.
        """
        await self._groups.settled()
        image = self._image()
        record = image.links.get(link)
        topic = image.topics.get(OFFSETS_TOPIC)
        reply = pb.DescribeGroupOffsetsReply(
            partitions=self._groups.loaded_partitions,
            partition_count=0 if topic is None else len(topic.partitions),
            synced_at_ms=self._synced_at_ms.get(link, 0),
        )
        if record is None:
            return reply
        for group in self._groups.list_groups(is_own_tool=True):
            if carries_group(record, group.group_id):
                offsets = self._groups.offsets_of(group.group_id, is_own_tool=True)
                carried = [
                    pb.GroupOffset(topic=partition.topic, partition=partition.partition, offset=value.offset)
                    for partition, value in offsets.items()
                    if carries_topic(record, partition.topic)
                ]
                has_members = self._groups.has_members(group)
                reply.groups.append(pb.GroupOffsets(group=group.group_id, has_members=has_members, offsets=carried))
        return reply
