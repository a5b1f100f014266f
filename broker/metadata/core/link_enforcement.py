"""Whether a record of a link is in force at this broker, and which leaders its partitions have
here. Pure; callers: `broker/site/control_service.py`, `broker/site/link_confirmations.py`.
"""

from __future__ import annotations

from broker.metadata.core.cluster_image import ClusterImage
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import NO_NODE
from wire.rules.leaderships import Leadership, digest_of
from wire.rules.links import supersedes


def is_in_force(image: ClusterImage, awaited: LinkRecord) -> bool:
    """True if this broker has the record of a link, or a later one."""
    link = image.links.get(awaited.name)
    return link is not None and not supersedes(awaited, link)


def has_leaders_above_floor(image: ClusterImage, record: LinkRecord) -> bool:
    """True if every partition that the link carries has a leader, with an epoch not below the floor
    of this record.
    """
    floor = record.leader_epoch_floor
    return all(
        partition.leader != NO_NODE and partition.leader_epoch >= floor
        for topic in image.topics.values()
        if record.name in image.links_of(topic.name)
        for partition in topic.partitions.values()
    )


def leaders_digest(image: ClusterImage, link: str) -> int:
    """The digest of the leaders that the link's partitions have in this image; 0 for a link that it
    does not have.
    """
    record = image.links.get(link)
    if record is None:
        return 0
    return digest_of(
        (
            Leadership(topic.name, index, partition.leader, partition.leader_epoch)
            for topic in image.topics.values()
            if link in image.links_of(topic.name)
            for index, partition in topic.partitions.items()
        ),
        floor=record.leader_epoch_floor,
    )
