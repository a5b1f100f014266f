"""Send a consumer to the replica in its rack, as `broker/metadata/core/read_replicas.py` decides:
a follower of this site, or the copy of a standby.

The input is the image, the leader's own state and what standbys have reported. Callers:
broker/handlers/records/fetch.py, at leaders, and at standbys for consumers that were sent there.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.read_replicas import RACK_AWARE_SELECTOR, ReadableReplica, replica_in_rack
from broker.replication.core.retention_holds import StandbyEnds
from broker.replication.hosted_partition import HostedPartition
from wire.rules.links import other_site


def preferred_replica(
    hosted: HostedPartition,
    image: ClusterImage,
    standbys: StandbyEnds | None,
    *,
    selector: str,
    rack: str,
    listener: str,
    offset: int,
    now_ms: float,
) -> int | None:
    """Node id of the replica that a consumer in the rack should fetch `offset` from, None to serve
    it here. Without `standbys` no copy of another site counts.
    """
    if not rack or selector != RACK_AWARE_SELECTOR:
        return None
    own = image.brokers.get(image.node_id)
    return replica_in_rack(
        rack,
        leader_rack="" if own is None else own.rack,
        followers=(
            *_followers(hosted, image, listener=listener, offset=offset),
            *_copies(hosted, image, standbys, listener=listener, offset=offset, now_ms=now_ms),
        ),
    )


def active_leader_epoch(hosted: HostedPartition, image: ClusterImage, *, rack: str) -> int | None:
    """The leader epoch that a consumer must know to read this site's copy, None where it may not
    read here: it is not in this broker's rack, or the site is no standby for the topic.
    """
    own = image.brokers.get(image.node_id)
    link = image.link_of(hosted.topic)
    # the empty rack is not a rack: clients without one stay at the leader
    if not rack or own is None or own.rack != rack or link is None:
        return None
    if not link.is_routed or image.role_in(link) is not LinkRole.PASSIVE:
        return None
    copied, active = image.topics.get(hosted.topic), image.routed_topic(hosted.topic)
    if copied is None or active is None or active.topic.topic_id != copied.topic_id:
        return None
    partition = active.topic.partitions.get(hosted.key[1])
    return None if partition is None else partition.leader_epoch


def _followers(
    hosted: HostedPartition, image: ClusterImage, *, listener: str, offset: int
) -> Iterator[ReadableReplica]:
    state = hosted.state
    # in-sync replicas alone: others may be far behind without a sign of it
    for node_id in state.isr:
        progress, broker = state.followers.get(node_id), image.brokers.get(node_id)
        if progress is None or broker is None:
            continue
        # -1 is a follower that has not reported its log start: it counts as 0
        if not max(progress.log_start_offset, 0) <= offset <= progress.log_end_offset:
            continue
        if any(endpoint.listener == listener for endpoint in broker.endpoints):
            yield ReadableReplica(node_id, broker.rack, progress.log_end_offset, progress.caught_up_at_ms)


def _copies(
    hosted: HostedPartition,
    image: ClusterImage,
    standbys: StandbyEnds | None,
    *,
    listener: str,
    offset: int,
    now_ms: float,
) -> Iterator[ReadableReplica]:
    """The leaders of the partition's copies at standbys of routed links."""
    if standbys is None or offset > hosted.state.high_watermark:  # out of range: the leader says so
        return
    for name in image.links_of(hosted.topic):
        link = image.links[name]
        view = image.peer_of(link)
        if view is None or not link.is_routed or image.role_in(link) is not LinkRole.ACTIVE:
            continue
        end = standbys.readable(hosted.key, link, offset, now_ms=now_ms)
        copied = image.topics_of_peer(other_site(link, image.site)).get(hosted.topic)
        partition = None if copied is None else copied.partitions.get(hosted.key[1])
        if end is None or partition is None:
            continue
        for broker in view.brokers:
            is_reached = any(endpoint.listener == listener for endpoint in broker.endpoints)
            if broker.node_id == partition.leader and is_reached:
                yield ReadableReplica(broker.node_id, broker.rack, end, 0.0)
