"""The four states of a partition and the transitions between them.

    NonExistent ──▶ New ──▶ Online ◀──▶ Offline ──▶ NonExistent

Held in the controller's memory only: a new controller derives them from ZooKeeper's data and the
living brokers. `Cluster.apply` refuses what the table does not allow.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class PartitionPhase(enum.Enum):
    """The stages of a partition's life."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


LEGAL_SOURCES: Mapping[PartitionPhase, tuple[PartitionPhase, ...]] = {
    PartitionPhase.NEW: (PartitionPhase.NON_EXISTENT,),
    PartitionPhase.ONLINE: (PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE),
    PartitionPhase.OFFLINE: (PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE),
    PartitionPhase.NON_EXISTENT: (PartitionPhase.OFFLINE,),
}
"""Maps each phase to the phases from which a partition may enter it."""


def may_move(source: PartitionPhase, target: PartitionPhase) -> bool:
    """True when a partition in `source` may enter `target`."""
    return source in LEGAL_SOURCES[target]
