"""The promotion of a standby: where its mirrored history ends, and whether its leaders take writes.
Pure; callers: `core/playbook.py`, `actions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.log_columns import LogEnds, LogsInColumns
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import other_site


def is_promoted(target: SiteEvidence) -> bool:
    """True when every partition has a leader above the floor that takes writes, and the role is
    confirmed.
    """
    return target.is_confirmed and has_leaders_above_floor(target) and not waiting_for_writes(target)


def waiting_for_writes(target: SiteEvidence) -> list[TopicPartition]:
    """The partitions that take no writes, or have no leader."""
    logs = target.partitions
    if isinstance(logs, LogsInColumns) and logs.are_all_writable:
        return sorted(target.leaderless)
    return sorted({*target.leaderless, *(key for key, item in logs.items() if not item.is_writable)})


def has_leaders_above_floor(target: SiteEvidence) -> bool:
    """True when every leader was elected in the new band, so that no write can get an old leader
    epoch.
    """
    floor = target.record.leader_epoch_floor
    logs = target.partitions
    if isinstance(logs, LogsInColumns):
        return not target.leaderless and min(logs.column("leader_epoch"), default=floor) >= floor
    return not target.leaderless and all(item.leader_epoch >= floor for item in logs.values())


def kept_ends(
    target: SiteEvidence, *, floor: int, before: Mapping[TopicPartition, int]
) -> tuple[LogEnds, list[TopicPartition]]:
    """The end of the mirrored history by partition, and the partitions that need an epoch lookup
    because writes began already. `floor`: leader epochs of the new band begin there. `before` holds
    the ends that this run saw before the raise under a proven fence and a finished drain.
    """
    logs = target.partitions
    in_columns = logs if isinstance(logs, LogsInColumns) and not target.leaderless else None
    if in_columns is not None and max(in_columns.column("last_log_epoch"), default=UNKNOWN) < floor:
        return in_columns.ends, []
    kept: dict[TopicPartition, int] = {}
    unclear: list[TopicPartition] = []
    for key, position in logs.items():
        if position.last_log_epoch < floor:
            kept[key] = position.log_end_offset
        # Clients already write here, but this run saw the end before they could.
        elif key in before:
            kept[key] = before[key]
        else:
            unclear.append(key)
    kept |= {key: before.get(key, UNKNOWN) for key in target.leaderless if key not in kept}
    return kept, unclear


def failed_over_from(record: LinkRecord) -> str:
    """The site that was active before the record's active one was promoted."""
    return other_site(record, record.active_site)
