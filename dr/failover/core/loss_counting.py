"""Counts the losses of a failover: the account of each partition, from the ends that the promoted
site kept and the source's known ends. Pure; `dr/sites/core/loss.py` has the account itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dr.failover.core.source_ends import SourceEnd, best_source_end
from dr.sites.core.access_rules import AccessLoss
from dr.sites.core.divergence import Differences, Divergence
from dr.sites.core.evidence import PartitionPosition
from dr.sites.core.group_offsets import GroupLoss
from dr.sites.core.loss import LossAccount, PartitionLoss
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
    missing = {TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions}
    received = SourceEnd(log_start_offset=0, end_offset=UNKNOWN, seen_at_ms=peer_seen_at_ms, is_exact=False)
    partitions = tuple(
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
