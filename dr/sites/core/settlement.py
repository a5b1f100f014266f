"""The account of a failover becomes final: when the old site is back and no partition of it has a
record that the promoted site lacks, its quarantine contains the lost records. Pure.

A partition has no own records if every record above the kept offset has a leader epoch of the
promoted site's band, or if its log holds no other records at all. Several brokers may keep the same
records; the longest entry counts.

The account may not know the kept offset, or abandoned records may have come back above it. A copy
with a record of the band has no own records then either: the mirror compares a copy's history with
the promoted site's log before it appends, and has the own records put into quarantine first. A copy
that ends where an entry in its quarantine begins has none either.

The link's epoch may have grown since the failover: each removed fence adds one. The band shows that
nothing else happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from dr.sites.core.loss import LossAccount, PartitionLoss
from dr.sites.core.positions import PartitionPosition
from wire.control.broker_pb2 import QuarantinedEnd
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN, TopicPartition


def account_to_settle(accounts: Mapping[int, LossAccount], record: LinkRecord) -> LossAccount | None:
    """The account, by its epoch, of the failover that made the record's active site active; None
    where the site has none.
    """
    before = [epoch for epoch in accounts if epoch <= record.epoch]
    if not before:
        return None
    account = accounts[max(before)]
    # any later change of the active site begins another band, even if it keeps no account
    is_same_band = account.leader_epoch_floor == record.leader_epoch_floor
    return account if account.to_site == record.active_site and is_same_band else None


def settled(
    account: LossAccount,
    positions: Mapping[TopicPartition, PartitionPosition],
    quarantined: Iterable[QuarantinedEnd],
    *,
    topics: Collection[str],
    link_epoch: int,
    now_ms: int,
) -> LossAccount | None:
    """The final account, from the reports of the old site's brokers in this epoch of the link; None
    while a partition of one of the site's `topics` is missing, or has or may have records that only
    the old site has.
    """
    if not account.leader_epoch_floor:
        return None
    ends: dict[TopicPartition, list[QuarantinedEnd]] = {}
    for end in quarantined:
        # an entry has the epoch in which its log was truncated, which may be a later one
        if account.epoch <= end.link_epoch <= link_epoch:
            ends.setdefault(TopicPartition(end.topic, end.partition), []).append(end)
    partitions = []
    for loss in account.partitions:
        key = TopicPartition(loss.topic, loss.partition)
        position = positions.get(key)
        kept = ends.get(key, [])
        if position is not None:
            found = _final(loss, position, kept, account.leader_epoch_floor)
        else:
            # a deleted topic has records in quarantine at most
            found = None if key.topic in topics else _found(loss, _longest(kept), loss.kept_below)
        if found is None:
            return None
        partitions.append(found)
    return replace(account, partitions=tuple(partitions), settled_at_ms=now_ms)


def _final(
    loss: PartitionLoss, position: PartitionPosition, ends: list[QuarantinedEnd], floor: int
) -> PartitionLoss | None:
    theirs = min((start.start_offset for start in position.epochs if start.epoch >= floor), default=UNKNOWN)
    longest = _longest(ends)
    own_end = position.log_end_offset if theirs == UNKNOWN else theirs
    # Retention may have removed the head of a copy, up to an offset above the kept one.
    is_all_theirs = position.log_start_offset in (theirs, position.log_end_offset)
    if not is_all_theirs and _has_own(loss, own_end, longest, follows=theirs != UNKNOWN):
        return None
    return _found(loss, longest, own_end if loss.kept_below == UNKNOWN else loss.kept_below)


def _longest(ends: Iterable[QuarantinedEnd]) -> QuarantinedEnd | None:
    return max(ends, key=lambda end: (end.end_offset - end.first_offset, end.size_bytes), default=None)


def _found(loss: PartitionLoss, kept: QuarantinedEnd | None, end_offset: int) -> PartitionLoss:
    """The loss with the records that were found in quarantine; `end_offset` is the end of the
    common history if there are none.
    """
    if kept is None:
        first = max(end_offset, 0)
        return replace(loss, found_first=first, found_end=first, found_bytes=0)
    return replace(loss, found_first=kept.first_offset, found_end=kept.end_offset, found_bytes=kept.size_bytes)


def _has_own(loss: PartitionLoss, own_end: int, kept: QuarantinedEnd | None, *, follows: bool) -> bool:
    """True while a copy has, or may have, records that the promoted site lacks. `own_end` is where
    its records of the promoted site begin, or its end without any.
    """
    if loss.kept_below != UNKNOWN and not loss.returning_records:
        return own_end > loss.kept_below
    is_truncated = kept is not None and own_end == kept.first_offset
    return not follows and not is_truncated
