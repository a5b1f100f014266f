"""The promotion of a standby: where its mirrored history ends, and whether its leaders take writes.
Pure; callers: `core/playbook.py`, `actions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.sites.core.evidence import SiteEvidence
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import other_site


def is_promoted(target: SiteEvidence) -> bool:
    """True when every partition has a leader above the floor that takes writes, and the role is
    confirmed.
    """
    floor = target.record.leader_epoch_floor
    return (
        target.is_confirmed
        and not target.leaderless
        and all(item.is_writable and item.leader_epoch >= floor for item in target.partitions.values())
    )


def has_leaders_above_floor(target: SiteEvidence) -> bool:
    """True when every leader was elected in the new band, so that no write can get an old leader
    epoch.
    """
    floor = target.record.leader_epoch_floor
    return not target.leaderless and all(item.leader_epoch >= floor for item in target.partitions.values())


def kept_ends(
    target: SiteEvidence, *, floor: int, before: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
    """The end of the mirrored history by partition, and the partitions that need an epoch lookup
    because writes began already. `floor`: leader epochs of the new band begin there. `before` holds
    the ends that this run saw before the raise under a proven fence and a finished drain.
    """
    kept: dict[TopicPartition, int] = {}
    unclear: list[TopicPartition] = []
    for key, position in target.partitions.items():
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
