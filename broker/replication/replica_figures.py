"""Partitions here, as the controller and metrics see them: offsets, epochs, roles, counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.truncated_records import TruncatedRecords
from wire.control import broker_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN, PartitionKey


def describe(
    partitions: HostedPartitions, image: ClusterImage, *, topics: Collection[str] = (), link: str = ""
) -> Iterable[pb.PartitionDescription]:
    """Offsets, epochs and roles of the partitions led here; of these topics if any are named, and
    of those that the link carries if it is named.
    """
    carriers: dict[str, LinkRecord | None] = {}
    for hosted in partitions:
        state, log, topic = hosted.state, hosted.log, hosted.topic
        if not state.is_leader or (topics and topic not in topics) or not is_of_link(image, topic, link):
            continue
        if topic not in carriers:
            carriers[topic] = image.link_of(topic)
        carrier, end, written = carriers[topic], log.log_end_offset, hosted.written_epochs
        last_epoch = written[-1].epoch if written and end > log.log_start_offset else UNKNOWN
        seen = hosted.source_of_copy(last_epoch)
        yield pb.PartitionDescription(
            topic=topic,
            topic_id=hosted.topic_id,
            partition=hosted.index,
            leader_epoch=state.leader_epoch,
            log_start_offset=log.log_start_offset,
            high_watermark=state.high_watermark,
            log_end_offset=end,
            last_log_epoch=last_epoch,
            link=carrier.name if carrier is not None else "",
            link_epoch=carrier.epoch if carrier is not None else 0,
            is_writable=hosted.write_error is ErrorCode.none,
            source_high_watermark=seen.high_watermark,
            source_seen_at_ms=seen.seen_at_ms,
            max_timestamp_ms=log.max_timestamp_ms,
            size_bytes=log.size_bytes,
            is_degraded=_is_degraded(hosted, carrier, image.site),
            has_markers=log.producers.has_markers,
            epochs=[pb.EpochStart(epoch=epoch, start_offset=start) for epoch, start in written],
        )


def logs_version(partitions: HostedPartitions, image: ClusterImage, *, broker_epoch: int) -> int:
    """A number that changes with the role, the ends and the epochs of any log here. It costs a
    twentieth of a description.
    """
    ends = (
        (
            hosted.state.leader_epoch,
            hosted.log.log_start_offset,
            hosted.state.high_watermark,
            hosted.log.log_end_offset,
            hosted.log.content_version,
        )
        for hosted in partitions
    )
    # Integers alone, whose hash is the same in each process; 0 stands for no version.
    return abs(hash((broker_epoch, image.version, *ends))) or 1


def is_of_link(image: ClusterImage, topic: str, link: str) -> bool:
    """True if the link carries the topic, perhaps beside others; without a link's name all topics
    count.
    """
    return not link or link in image.links_of(topic)


def _is_degraded(hosted: HostedPartition, link: LinkRecord | None, site: str) -> bool:
    """True if records became visible that the standby may not have."""
    if hosted.state.hold is not None:
        return hosted.state.hold.is_degraded
    # A leader that has just started has no hold before it may write. While the policy is suspended,
    # its predecessor may have shown anything: without this, the policy would be restored too early.
    return link is not None and link.active_site == site and bool(link.sync_policy_to_restore)


def truncations(partitions: HostedPartitions, cuts: TruncatedRecords, *, node_id: int) -> Iterable[pb.TruncatedLog]:
    """The records that logs here, led or not, have lost to other histories."""
    for (topic, index), known in cuts.by_partition().items():
        if partitions.find(topic, index) is None:
            continue
        yield pb.TruncatedLog(
            topic=topic,
            partition=index,
            node_id=node_id,
            cuts=known.count,
            records=known.records,
            bytes=known.bytes,
            kept_bytes=known.kept_bytes,
            last_first_offset=known.first_offset,
            last_at_ms=known.at_ms,
        )


def quarantine_use(cuts: TruncatedRecords, *, node_id: int, now_ms: int) -> pb.QuarantineUse:
    """How full the broker's quarantine is, and when its first entry expires."""
    use = cuts.quarantine.use
    return pb.QuarantineUse(
        node_id=node_id,
        entries=use.entries,
        bytes=use.size_bytes,
        fullest_percent=use.fullest_percent,
        fullest_partition=use.fullest_place,
        first_expiring=use.first_expiring,
        expires_in_ms=use.expires_in_ms(now_ms),
        is_expiring=use.is_expiring,
    )


def sizes(partitions: HostedPartitions) -> dict[PartitionKey, tuple[int, int, int]]:
    """Size, start and end offset by partition, for the metrics (called from their thread)."""
    return {
        hosted.key: (hosted.log.size_bytes, hosted.log.log_start_offset, hosted.log.log_end_offset)
        for hosted in partitions
    }


def under_replicated_count(partitions: HostedPartitions) -> int:
    """Partitions led here whose ISR is smaller than their replicas."""
    return sum(
        1 for hosted in partitions if hosted.state.is_leader and len(hosted.state.isr) < len(hosted.state.replicas)
    )


def under_min_isr_count(partitions: HostedPartitions) -> int:
    """Partitions led here that refuse acks=all: fewer replicas in sync than
    min.insync.replicas.
    """
    return sum(1 for hosted in partitions if hosted.state.is_leader and hosted.state.spare_in_sync < 0)


def at_min_isr_count(partitions: HostedPartitions) -> int:
    """Partitions led here that would refuse acks=all if one more replica were lost."""
    return sum(1 for hosted in partitions if hosted.state.is_leader and hosted.state.spare_in_sync == 0)


def leader_count(partitions: HostedPartitions) -> int:
    """Partitions led here."""
    return sum(1 for hosted in partitions if hosted.state.is_leader)


def follower_lags(partitions: HostedPartitions) -> dict[PartitionKey, int]:
    """Records that each follower here lacks, for the metrics (called from their thread)."""
    return {hosted.key: hosted.leader_lag for hosted in partitions if hosted.state.is_follower}
