"""Hints in responses to clients that contacted the wrong broker: the partition's leader and its
address (KIP-951).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from wire.protocol.messages.leader_hints import NO_HINT, LeaderHint, NodeEndpoint

HINTED_ERRORS = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


def leader_hint(image: ClusterImage, topic: str, index: int) -> LeaderHint:
    """The partition's leader, unless it is this broker or there is none."""
    routed = image.routed_topic(topic)
    partition = None if routed is None else routed.topic.partitions.get(index)
    # -1: an election is in progress; a hint to this broker itself would send the client in a circle
    if partition is None or partition.leader < 0 or partition.leader == image.node_id:
        return NO_HINT
    return LeaderHint(partition.leader, partition.leader_epoch)


def hinted_endpoints(image: ClusterImage, hints: set[int], listener: str) -> list[NodeEndpoint]:
    """The endpoints of the hinted leaders at this listener."""
    brokers = image.routed_brokers() if hints else {}
    return [
        NodeEndpoint(node_id, endpoint.host, endpoint.port, brokers[node_id].rack or None)
        for node_id in hints & brokers.keys()
        for endpoint in brokers[node_id].endpoints
        if endpoint.listener == listener
    ]
