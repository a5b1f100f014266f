"""Send a consumer to the replica in its rack, as `broker/metadata/core/read_replicas.py` decides.

The input is the image and the leader's own state. Callers: broker/handlers/records/fetch.py, at
leaders.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.read_replicas import RACK_AWARE_SELECTOR, ReadableReplica, replica_in_rack
from broker.replication.hosted_partition import HostedPartition


def preferred_replica(
    hosted: HostedPartition, image: ClusterImage, *, selector: str, rack: str, listener: str, offset: int
) -> int | None:
    """Node id of the follower that a consumer in the rack should fetch `offset` from, None to serve
    it here.
    """
    if not rack or selector != RACK_AWARE_SELECTOR:
        return None
    own = image.brokers.get(image.node_id)
    return replica_in_rack(
        rack,
        leader_rack="" if own is None else own.rack,
        followers=_followers(hosted, image, listener=listener, offset=offset),
    )


def _followers(
    hosted: HostedPartition, image: ClusterImage, *, listener: str, offset: int
) -> Iterator[ReadableReplica]:
    state = hosted.state
    for node_id in state.isr:
        progress, broker = state.followers.get(node_id), image.brokers.get(node_id)
        if progress is None or broker is None:
            continue
        if not max(progress.log_start_offset, 0) <= offset <= progress.log_end_offset:
            continue
        if any(endpoint.listener == listener for endpoint in broker.endpoints):
            yield ReadableReplica(node_id, broker.rack, progress.log_end_offset, progress.caught_up_at_ms)
