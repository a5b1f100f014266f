"""Whether a record of a link is in force at this broker. Pure; caller:
`broker/site/control_service.py`.
"""

from __future__ import annotations

from broker.metadata.core.cluster_image import ClusterImage
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import NO_NODE
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
