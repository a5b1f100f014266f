"""Derives the phases of a partition and a replica from the stored state and the living brokers, for
a newly elected controller.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Broker, Leadership
from wire.protocol.ids import NO_NODE


def derived_partition_phase(leadership: Leadership | None, brokers: Mapping[int, Broker]) -> PartitionPhase:
    """The phase of a partition with this stored leadership; `brokers` are those alive, by node id.

    A leader that registered after its leadership was written has restarted: it may have lost the
    unflushed end of its log, so its partitions count as offline and get a new leader epoch.
    """
    if leadership is None:
        return PartitionPhase.NEW
    leader = None if leadership.leader == NO_NODE else brokers.get(leadership.leader)
    if leader is None or leader.epoch > leadership.known_zxid:
        return PartitionPhase.OFFLINE
    return PartitionPhase.ONLINE


def derived_replica_phase(*, is_alive: bool, is_deleting: bool) -> ReplicaPhase:
    """The phase of a replica, by its broker and its topic."""
    if is_alive:
        return ReplicaPhase.ONLINE
    return ReplicaPhase.DELETION_INELIGIBLE if is_deleting else ReplicaPhase.OFFLINE
