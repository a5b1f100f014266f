"""The seven states of a replica and the transitions between them.

If the topic is to be deleted and the broker is dead, a replica enters ReplicaDeletionIneligible
from any state, and returns to OfflineReplica with its broker. So a deletion pauses and resumes
instead of failing. Memory only, as with `partition_states`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ReplicaPhase(enum.Enum):
    """The phase in the life of one replica of a partition."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_SERVING = (ReplicaPhase.NEW, ReplicaPhase.ONLINE, ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_INELIGIBLE)

LEGAL_SOURCES: Mapping[ReplicaPhase, tuple[ReplicaPhase, ...]] = {
    ReplicaPhase.NEW: (ReplicaPhase.NON_EXISTENT,),
    ReplicaPhase.ONLINE: _SERVING,
    ReplicaPhase.OFFLINE: _SERVING,
    ReplicaPhase.DELETION_STARTED: (ReplicaPhase.OFFLINE,),
    ReplicaPhase.DELETION_SUCCESSFUL: (ReplicaPhase.DELETION_STARTED,),
    ReplicaPhase.DELETION_INELIGIBLE: (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_STARTED),
    ReplicaPhase.NON_EXISTENT: (ReplicaPhase.DELETION_SUCCESSFUL,),
}
"""Maps each phase to the phases from which a replica may enter it."""


def may_move(source: ReplicaPhase, target: ReplicaPhase) -> bool:
    """True when a replica in `source` may enter `target`."""
    return source in LEGAL_SOURCES[target]
