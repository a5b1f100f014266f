"""The facts about registered, leaving and lost brokers, applied to the cluster. Caller:
`cluster.py`.
"""

from __future__ import annotations

from typing import Protocol

from controller.core.state import facts as fact
from controller.core.state.site_values import Broker
from wire.protocol.ids import TopicPartition

BrokerFact = (
    fact.BrokerJoined
    | fact.BrokerLeft
    | fact.PresumptionDropped
    | fact.RegistrationsListed
    | fact.BrokerLeaving
    | fact.OfflineReplicasKnown
    | fact.BrokerUnregistered
    | fact.UnregistrationEnded
)


class Brokers(Protocol):
    """The part of a cluster that these facts change."""

    brokers: dict[int, Broker]
    presumed_dead: dict[int, Broker]
    registrations_zxid: int
    leaving: set[int]
    offline_replicas: dict[int, frozenset[TopicPartition]]
    unregistered: set[int]


def apply_broker_fact(cluster: Brokers, change: BrokerFact) -> None:
    """Change what the cluster knows of one broker, or of its registrations."""
    match change:
        case fact.BrokerJoined():
            cluster.brokers[change.broker.node_id] = change.broker
        case fact.BrokerLeft():
            left = cluster.brokers.pop(change.node_id)
            cluster.leaving.discard(change.node_id)
            cluster.offline_replicas.pop(change.node_id, None)
            if change.is_presumed:
                cluster.presumed_dead[change.node_id] = left
        case fact.PresumptionDropped():
            cluster.presumed_dead.pop(change.node_id)
        case fact.RegistrationsListed():
            cluster.registrations_zxid = change.zxid
        case fact.BrokerLeaving():
            cluster.leaving.add(change.node_id)
        case fact.OfflineReplicasKnown():
            cluster.offline_replicas.pop(change.node_id, None)
            if change.partitions:
                cluster.offline_replicas[change.node_id] = change.partitions
        case fact.BrokerUnregistered():
            cluster.unregistered.add(change.node_id)
        case fact.UnregistrationEnded():
            cluster.unregistered.discard(change.node_id)
