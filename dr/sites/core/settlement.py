"""The account of a failover becomes final: when the old site is back and no partition of it has a
record that the promoted site lacks, what its quarantine holds is what was lost. Pure.

A partition has nothing alone when every record above the kept offset has a leader epoch of the
promoted site's band. Several brokers may keep the same records; the longest entry counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dr.sites.core.evidence import PartitionPosition
from dr.sites.core.loss import LossAccount, PartitionLoss
from wire.control.broker_pb2 import QuarantinedEnd
from wire.protocol.ids import UNKNOWN, TopicPartition


def settled(
    account: LossAccount,
    positions: Mapping[TopicPartition, PartitionPosition],
    quarantined: Iterable[QuarantinedEnd],
    *,
    now_ms: int,
) -> LossAccount | None:
    """The final account, from what the old site's brokers say; None while a partition is not there
    or has records alone, or where the account does not say from which offset on.
    """
    if not account.leader_epoch_floor:
        return None
    ends: dict[TopicPartition, list[QuarantinedEnd]] = {}
    for end in quarantined:
        if end.link_epoch == account.epoch:
            ends.setdefault(TopicPartition(end.topic, end.partition), []).append(end)
    partitions = []
    for loss in account.partitions:
        key = TopicPartition(loss.topic, loss.partition)
        position = positions.get(key)
        if position is None or _has_own(position, loss.kept_below, account.leader_epoch_floor):
            return None
        partitions.append(_final(loss, ends.get(key, [])))
    return replace(account, partitions=tuple(partitions), settled_at_ms=now_ms)


def _has_own(position: PartitionPosition, kept_below: int, floor: int) -> bool:
    if kept_below == UNKNOWN:
        return True
    theirs = [start.start_offset for start in position.epochs if start.epoch >= floor]
    return min(theirs, default=position.log_end_offset) > kept_below


def _final(loss: PartitionLoss, ends: list[QuarantinedEnd]) -> PartitionLoss:
    if not ends:
        return replace(loss, found_first=loss.kept_below, found_end=loss.kept_below, found_bytes=0)
    longest = max(ends, key=lambda end: (end.end_offset - end.first_offset, end.size_bytes))
    return replace(loss, found_first=longest.first_offset, found_end=longest.end_offset, found_bytes=longest.size_bytes)
