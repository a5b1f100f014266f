"""Counts the losses of a failover: the account of each partition, from the ends that the promoted
site kept and the source's known ends. Pure; `dr/sites/core/loss.py` has the account itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from dr.failover.core.source_ends import SourceEnd, SourceEndsInColumns, best_source_end
from dr.sites.core.access_rules import AccessLoss
from dr.sites.core.divergence import Differences, Divergence
from dr.sites.core.group_offsets import GroupLoss
from dr.sites.core.log_columns import LogsInColumns, PartitionEnds
from dr.sites.core.loss import LossAccount, PartitionLoss
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from wire.protocol.ids import UNKNOWN, TopicPartition

SAME = Differences(diverged={}, unproven={})
"""No partition differs."""


def account(
    *,
    link: str,
    epoch: int,
    from_site: str,
    to_site: str,
    kept: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, PartitionPosition],
    source: Mapping[TopicPartition, SourceEnd],
    now_ms: int,
    groups: GroupLoss | None = None,
    access: AccessLoss | None = None,
    unprotected: Iterable[UnprotectedTopic] = (),
    peer_seen_at_ms: int = UNKNOWN,
    differences: Differences = SAME,
    leader_epoch_floor: int = 0,
    is_planned: bool = False,
) -> LossAccount:
    """The account from the promoted site's kept ends, its mirror's last knowledge, and the source's
    own last report.

    A partition that `kept` does not name does not exist at the promoted site; one with the value
    UNKNOWN exists there, but its leader did not answer. Nothing is kept of `unprotected` topics,
    even if the site has topics with these names; their site reported them at `peer_seen_at_ms`.
    `differences` are those of the logs up to their kept ends.
    """
    topics = sorted(unprotected, key=lambda topic: topic.topic)
    partitions: tuple[PartitionLoss, ...] | None = None
    if not topics and not differences:
        partitions = _losses_in_columns(kept, target, source, now_ms)
    if partitions is None:
        partitions = _losses(
            kept, target, source, now_ms, topics, peer_seen_at_ms=peer_seen_at_ms, differences=differences
        )
    return LossAccount(
        link=link,
        epoch=epoch,
        from_site=from_site,
        to_site=to_site,
        accounted_at_ms=now_ms,
        partitions=partitions,
        groups=groups,
        access=access,
        unprotected=tuple(topic.reason for topic in topics),
        leader_epoch_floor=leader_epoch_floor,
        is_planned=is_planned,
    )


def _losses_in_columns(
    kept: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, PartitionPosition],
    source: Mapping[TopicPartition, SourceEnd],
    now_ms: int,
) -> tuple[PartitionLoss, ...] | None:
    """The accounts of partitions that are the same at both sites and are known in columns, or of a
    source that has not reported a log; None for others.
    """
    if not isinstance(target, LogsInColumns) or not isinstance(kept, PartitionEnds) or kept.order is not target.order:
        return None
    count = len(target)
    if isinstance(source, SourceEndsInColumns) and source.is_exact and source.logs.order is target.order:
        ends, starts = source.logs.ends.offsets, source.logs.column("log_start_offset")
        seen = array("q", [source.seen_at_ms]) * count
    elif not source:
        ends, starts, seen = (
            target.source_ends.offsets,
            array("q", bytes(8)) * count,
            target.column("source_seen_at_ms"),
        )
        seen = array("q", [UNKNOWN if end == UNKNOWN else at for end, at in zip(ends, seen, strict=True)])
    else:
        return None
    return tuple(
        PartitionLoss(
            topic=topic,
            partition=partition,
            kept_below=kept_below,
            source_end=end,
            is_source_end_exact=bool(source),
            known_lost_records=0 if kept_below == UNKNOWN else max(0, end - max(kept_below, start)),
            last_contact_ms=UNKNOWN if seen_at_ms == UNKNOWN else max(0, now_ms - seen_at_ms),
        )
        for (topic, partition), kept_below, end, start, seen_at_ms in zip(
            target.order.keys, kept.offsets, ends, starts, seen, strict=True
        )
    )


def _losses(
    kept: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, PartitionPosition],
    source: Mapping[TopicPartition, SourceEnd],
    now_ms: int,
    topics: Iterable[UnprotectedTopic],
    *,
    peer_seen_at_ms: int,
    differences: Differences,
) -> tuple[PartitionLoss, ...]:
    missing = {TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions}
    received = SourceEnd(log_start_offset=0, end_offset=UNKNOWN, seen_at_ms=peer_seen_at_ms, is_exact=False)
    return tuple(
        # a topic of that name here is another one: nothing in it counts as kept
        _partition_loss(key, 0, None, source.get(key, received), now_ms, is_protected=False)
        if key in missing
        else _partition_loss(
            key,
            kept.get(key, 0),
            target.get(key),
            source.get(key) or (received if key not in target else None),
            now_ms,
            is_protected=key in kept or key in target,
            divergence=differences.diverged.get(key),
            unproven_end=differences.unproven.get(key, UNKNOWN),
        )
        for key in sorted({*kept, *target, *source, *missing})
    )


def _partition_loss(
    key: TopicPartition,
    kept: int,
    target: PartitionPosition | None,
    source: SourceEnd | None,
    now_ms: int,
    *,
    is_protected: bool,
    divergence: Divergence | None = None,
    unproven_end: int = UNKNOWN,
) -> PartitionLoss:
    if unproven_end != UNKNOWN:
        kept = UNKNOWN
    elif divergence is not None:
        # independent of the target's end: from the divergence on, the copy has another history
        kept = divergence.parts_at
    end = best_source_end(target, source)
    if end is None:
        end = SourceEnd(log_start_offset=0, end_offset=UNKNOWN, seen_at_ms=UNKNOWN, is_exact=False)
    # records that the source had deleted itself are not lost; nothing is counted where it is not
    # known what is kept
    lost = 0 if kept == UNKNOWN else max(0, end.end_offset - max(kept, end.log_start_offset))
    return PartitionLoss(
        topic=key.topic,
        partition=key.partition,
        kept_below=kept,
        source_end=end.end_offset,
        is_source_end_exact=end.is_exact,
        known_lost_records=lost,
        last_contact_ms=UNKNOWN if end.seen_at_ms == UNKNOWN else max(0, now_ms - end.seen_at_ms),
        is_protected=is_protected,
        returning_records=0 if divergence is None else divergence.own_records,
        unproven_end=unproven_end,
    )
