"""Compares the records that a query has read and a failover has lost with the failovers' accounts.
Pure.

What the account of a site that was killed says exactly is the offset below which each partition is
kept: no record below it may be lost. How many records the site had beyond it is known only where
the site was asked after its fence, so only such partitions have a limit by number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from dr.sites.core.loss import LossAccount, PartitionLoss
from wire.protocol.ids import UNKNOWN, TopicPartition


class Judged(NamedTuple):
    """`problems` are sentences about losses that the accounts contradict. `is_number_known` is
    False if a partition with losses has no limit by number.
    """

    problems: tuple[str, ...]
    is_number_known: bool


def judge_lost(lost: Iterable[Mapping[str, Any]], accounts: Collection[LossAccount]) -> Judged:
    """Judge the lost records of each partition: `topic`, `partition`, the lowest lost offset
    (`first_offset`) and their number (`records`).
    """
    accounted: dict[TopicPartition, list[PartitionLoss]] = {}
    for account in accounts:
        for item in account.partitions:
            accounted.setdefault(TopicPartition(item.topic, item.partition), []).append(item)
    problems, is_number_known = [], True
    for one in lost:
        losses = accounted.get(TopicPartition(one["topic"], one["partition"]), [])
        problem = _problem(one["first_offset"], one["records"], losses)
        if problem:
            problems.append(f"{one['topic']}-{one['partition']}: {problem}")
        is_number_known = is_number_known and all(map(_is_exact, losses))
    return Judged(tuple(problems), is_number_known)


def _problem(first_offset: int, records: int, losses: Collection[PartitionLoss]) -> str:
    if not losses:
        return f"{records} records are lost, and no account has the partition"
    # With several failovers, it is the lowest of them: a later history may use lower offsets again.
    kept_below = min(one.kept_below for one in losses)
    if kept_below != UNKNOWN and first_offset < kept_below:
        return f"offset {first_offset} is lost, and the account keeps everything below offset {kept_below}"
    limit = sum(one.known_lost_records for one in losses)
    if all(map(_is_exact, losses)) and records > limit:
        return f"{records} records are lost, and the account has {limit}"
    return ""


def _is_exact(loss: PartitionLoss) -> bool:
    return loss.is_source_end_exact and loss.kept_below != UNKNOWN
