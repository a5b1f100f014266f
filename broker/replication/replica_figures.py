"""Partitions here, as the controller and metrics see them: offsets, epochs, roles, counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.truncated_records import TruncatedRecords
from wire.control import broker_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord
from wire.control.partition_columns import HAS_MARKERS, IS_WRITABLE, Row, message_of
from wire.protocol.ids import UNKNOWN, PartitionKey


def describe(
    partitions: Iterable[HostedPartition], image: ClusterImage, *, topics: Collection[str] = (), link: str = ""
) -> Iterable[pb.PartitionDescription]:
    """Offsets, epochs and roles of the partitions led here; of these topics if any are named, and
    of those that the link carries if it is named.
    """
    carriers: dict[str, LinkRecord | None] = {}
    for hosted, topic, epochs, starts, fields in _led(partitions, image, topics, link):
        log = hosted.log
        if topic not in carriers:
            carriers[topic] = image.link_of(topic)
        carrier = carriers[topic]
        index, leader_epoch, start, high_watermark, end, last_epoch, *others = fields
        source_end, seen_at_ms, newest_ms, flags, thinned_to = others
        yield pb.PartitionDescription(
            topic=topic,
            topic_id=hosted.topic_id,
            partition=index,
            leader_epoch=leader_epoch,
            log_start_offset=start,
            high_watermark=high_watermark,
            log_end_offset=end,
            last_log_epoch=last_epoch,
            link=carrier.name if carrier is not None else "",
            link_epoch=carrier.epoch if carrier is not None else 0,
            is_writable=bool(flags & IS_WRITABLE),
            source_high_watermark=source_end,
            source_seen_at_ms=seen_at_ms,
            max_timestamp_ms=newest_ms,
            size_bytes=log.size_bytes,
            is_degraded=_is_degraded(hosted, carrier, image.site),
            has_markers=bool(flags & HAS_MARKERS),
            thinned_to=thinned_to,
            epochs=[
                pb.EpochStart(epoch=epoch, start_offset=start) for epoch, start in zip(epochs, starts, strict=True)
            ],
        )


def describe_in_columns(
    partitions: Iterable[HostedPartition], image: ClusterImage, *, topics: Collection[str] = (), link: str = ""
) -> pb.PartitionColumns:
    """The same partitions as columns, which cost a fraction."""
    return message_of(row[1:] for row in _led(partitions, image, topics, link))


def _led(
    partitions: Iterable[HostedPartition], image: ClusterImage, topics: Collection[str], link: str
) -> Iterator[tuple[HostedPartition, *Row]]:
    """The partitions led here, with their columns."""
    is_asked: dict[str, bool] = {}
    # Python 3.11 calls a function for each look at a member of an enumeration
    no_error = ErrorCode.none
    for hosted in partitions:
        state, topic = hosted.state, hosted.topic
        if not state.is_leader:
            continue
        if (asked := is_asked.get(topic)) is None:
            asked = is_asked[topic] = (not topics or topic in topics) and is_of_link(image, topic, link)
        if not asked:
            continue
        log = hosted.log
        start, end = log.log_start_offset, log.log_end_offset
        epochs, starts = log.written_epochs
        last_epoch = epochs[-1] if epochs and end > start else UNKNOWN
        seen = hosted.source_of_copy(last_epoch)
        flags = IS_WRITABLE if hosted.write_error is no_error else 0
        if log.producers.has_markers:
            flags |= HAS_MARKERS
        yield (
            hosted,
            topic,
            epochs,
            starts,
            (
                hosted.index,
                state.leader_epoch,
                start,
                state.high_watermark,
                end,
                last_epoch,
                seen.high_watermark,
                seen.seen_at_ms,
                log.max_timestamp_ms,
                flags,
                log.thinned_to,
            ),
        )


def logs_version(
    partitions: Iterable[HostedPartition], image: ClusterImage, *, broker_epoch: int, link: str = ""
) -> int:
    """A number that changes with all that `describe_in_columns` says of the logs here, but for the
    reports of mirrors. It costs a tenth of a description. It does not change with an image that
    leaves these logs alone: a fence of the other site would otherwise have a failover describe
    thousands of logs again while writers wait.
    """
    no_error = ErrorCode.none
    ends = (
        (
            hosted.state.leader_epoch,
            hosted.state.is_leader,
            hosted.write_error is no_error,
            hosted.log.log_start_offset,
            hosted.state.high_watermark,
            hosted.log.log_end_offset,
            hosted.log.content_version,
            hosted.log.thinned_to,
        )
        for hosted in partitions
    )
    topics = (
        (int.from_bytes(topic.topic_id, "big"), len(topic.partitions), is_of_link(image, name, link))
        for name, topic in image.topics.items()
    )
    # Integers alone, whose hash is the same in each process; 0 stands for no version.
    return abs(hash((broker_epoch, *topics, *ends))) or 1


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


def sizes(partitions: Iterable[HostedPartition]) -> dict[PartitionKey, tuple[int, int, int]]:
    """Size, start and end offset by partition, for the metrics (called from their thread)."""
    return {
        hosted.key: (hosted.log.size_bytes, hosted.log.log_start_offset, hosted.log.log_end_offset)
        for hosted in partitions
    }


def under_replicated_count(partitions: Iterable[HostedPartition]) -> int:
    """Partitions led here whose ISR is smaller than their replicas."""
    return sum(
        1 for hosted in partitions if hosted.state.is_leader and len(hosted.state.isr) < len(hosted.state.replicas)
    )


def under_min_isr_count(partitions: Iterable[HostedPartition]) -> int:
    """Partitions led here that refuse acks=all: fewer replicas in sync than
    min.insync.replicas.
    """
    return sum(1 for hosted in partitions if hosted.state.is_leader and hosted.state.spare_in_sync < 0)


def at_min_isr_count(partitions: Iterable[HostedPartition]) -> int:
    """Partitions led here that would refuse acks=all if one more replica were lost."""
    return sum(1 for hosted in partitions if hosted.state.is_leader and hosted.state.spare_in_sync == 0)


def leader_count(partitions: Iterable[HostedPartition]) -> int:
    """Partitions led here."""
    return sum(1 for hosted in partitions if hosted.state.is_leader)


def follower_lags(partitions: Iterable[HostedPartition]) -> dict[PartitionKey, int]:
    """Records that each follower here lacks, for the metrics (called from their thread)."""
    return {hosted.key: hosted.leader_lag for hosted in partitions if hosted.state.is_follower}
