"""Brokers that join and leave, links that change their active site, and a controller's takeover.

A broker that registers again (with another epoch) counts as gone and come back: its process may
have lost the unflushed end of its logs, so its leaderships get a new leader epoch.

A broker that refuses connections is presumed dead before its registration ends. A wrong presumption
loses no records: other brokers lead its partitions with higher leader epochs, and the broker joins
again when it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from controller.core import elections
from controller.core.commands import (
    BrokerAnswered,
    BrokersListed,
    BrokerUnreachable,
    LinksListed,
    ReplicasOffline,
    TakeOver,
    UnregisterBroker,
)
from controller.core.draft import Draft
from controller.core.elections import Election
from controller.core.partitions import epoch_raises, reassignment
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Broker, Replica
from controller.core.topics import topic_deletion
from wire.protocol.ids import NO_NODE, TopicPartition


def take_over(draft: Draft, command: TakeOver) -> None:
    """Complete what the former controller left: resume deletions, elect missing leaders, raise
    leader epochs to the floors of links, and send the image to every broker.

    The same decision presumes unreachable brokers dead. Often one of them shared a process with the
    former controller, and its registration has not expired yet.
    """
    cluster = draft.cluster
    for node in sorted(cluster.unregistered & cluster.brokers.keys()):
        draft.record(facts.UnregistrationEnded(node_id=node))
    for name in sorted(cluster.deletions):
        topic_deletion.begin(draft, name)
    dead = {replica.node for replica in cluster.replica_phases if replica.node not in cluster.brokers}
    # registered brokers do not count: a broker that is only presumed dead may return with every
    # record
    distrust_restarted(draft, tuple(cluster.leaderships), unreachable=command.unreachable)
    for node in sorted(command.unreachable & cluster.brokers.keys()):
        _lose(draft, node, is_presumed=True)
        draft.reasons.append(f"broker {node} is presumed dead")
    leaderless = [
        partition for partition, phase in cluster.partition_phases.items() if phase is not PartitionPhase.ONLINE
    ]
    draft.bring_online(leaderless)
    _mark_offline(draft, dead)
    epoch_raises.raise_to_floors(draft)
    reassignment.complete_in_sync(
        draft, [partition for topic in draft.cluster.topics.values() for partition in topic.partitions()]
    )
    draft.image_nodes.update(draft.cluster.brokers)


def distrust_restarted(
    draft: Draft, partitions: Iterable[TopicPartition], *, unreachable: frozenset[int] = frozenset()
) -> None:
    """Treat replicas as restarted if the writer of the partition's state did not know their
    broker's registration: they leave the in-sync replicas of each partition where another in-sync
    replica did not restart and is alive, and have to catch up first. A leader among them loses the
    leadership with that write: if this controller dies before the election is stored, its successor
    knows that the leader restarted.
    """
    brokers = draft.cluster.brokers
    for partition in partitions:
        known = draft.cluster.leaderships.get(partition)
        if known is None or draft.cluster.is_deleting(partition.topic):
            continue
        # a broker without a registration is handled as dead by the callers, not as restarted
        stayed = [node for node in known.isr if node not in brokers or brokers[node].epoch <= known.known_zxid]
        if len(stayed) == len(known.isr):
            continue
        if draft.cluster.electable().isdisjoint(stayed):
            _lead_alone(draft, partition, unreachable)
        # the restarted replicas may lack their unflushed records, so they leave the in-sync
        # replicas
        elif known.leader in stayed:
            draft.keep_leader(partition, tuple(stayed))
        else:
            draft.lead(partition, NO_NODE, tuple(stayed))


def _lead_alone(draft: Draft, partition: TopicPartition, unreachable: frozenset[int]) -> None:
    """Elect one of the restarted replicas and make it the only in-sync replica. Each of the others
    may lack records that this leader has, and must copy them before it may lead (as in KRaft, where
    a broker that stopped uncleanly leaves the in-sync replicas: KIP-966).
    """
    cluster = draft.cluster
    election = elections.elect_offline(
        replicas=cluster.replicas_of(partition),
        isr=cluster.leaderships[partition].isr,
        live=cluster.electable_for(partition) - unreachable,
        may_be_unclean=False,
    )
    if isinstance(election, Election):
        draft.lead(partition, election.leader, (election.leader,))
        draft.move_partition(partition, PartitionPhase.ONLINE)


def list_brokers(draft: Draft, command: BrokersListed) -> None:
    """Compare with the known brokers: first remove brokers that are gone, then add the new ones."""
    known = draft.cluster.brokers
    gone = [node for node in sorted(known) if not _stands(known[node], command)]
    for node in gone:
        _lose(draft, node)
    dead = [node for node, broker in sorted(draft.cluster.presumed_dead.items()) if not _stands(broker, command)]
    for node in dead:
        draft.record(facts.PresumptionDropped(node_id=node))
    here = draft.cluster.brokers.keys() | draft.cluster.presumed_dead.keys()
    come = [command.brokers[node] for node in sorted(command.brokers) if node not in here]
    _add(draft, come)
    epoch_raises.store_for_earlier_releases(draft)
    # last: until here a broker that has just registered may not be among the brokers
    if command.registrations_zxid > draft.cluster.registrations_zxid:
        draft.record(facts.RegistrationsListed(zxid=command.registrations_zxid))
    if dead:
        # unclean elections wait while a broker is only presumed dead: it may still have every
        # record
        draft.bring_online(draft.cluster.offline_partitions())
    if gone or come:
        draft.has_membership_changed = True
        draft.reasons.append(f"gone {gone}, come {[broker.node_id for broker in come]}")


def _stands(broker: Broker, command: BrokersListed) -> bool:
    found = command.brokers.get(broker.node_id)
    return found is not None and found.epoch == broker.epoch


def presume_dead(draft: Draft, command: BrokerUnreachable) -> None:
    """Elect other leaders immediately, without waiting for the end of the registration, because no
    process listens at the broker's address.
    """
    broker = draft.cluster.brokers.get(command.node_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return
    _lose(draft, command.node_id, is_presumed=True)
    draft.has_membership_changed = True
    draft.reasons.append(f"broker {command.node_id} is presumed dead")


def take_back(draft: Draft, command: BrokerAnswered) -> None:
    """Add a broker again that was wrongly presumed dead."""
    broker = draft.cluster.presumed_dead.get(command.node_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return
    draft.record(facts.PresumptionDropped(node_id=command.node_id))
    _add(draft, [broker])
    draft.has_membership_changed = True
    draft.reasons.append(f"broker {command.node_id} was wrongly presumed dead")


def unregister(draft: Draft, command: UnregisterBroker) -> None:
    """Record that a broker will not return. Refused while the broker is registered, and for a node
    id without replicas.
    """
    node, cluster = command.node_id, draft.cluster
    if node in cluster.brokers or node in cluster.presumed_dead:
        draft.error = ErrorCode.invalid_request
        draft.message = f"broker {node} is registered: stop it first, and wait until its ZooKeeper session has ended"
    elif node not in cluster.unregistered:
        if not _replicas_on(draft, {node}):
            draft.error = ErrorCode.broker_id_not_registered
            draft.message = f"broker {node} is not registered, and no partition has a replica there"
            return
        draft.record(facts.BrokerUnregistered(node_id=node))
        topic_deletion.give_up(draft, node)


def _add(draft: Draft, come: Sequence[Broker]) -> None:
    for broker in come:
        if broker.node_id in draft.cluster.unregistered:
            draft.record(facts.UnregistrationEnded(node_id=broker.node_id))
            draft.reasons.append(f"broker {broker.node_id}, which was unregistered, registered again")
        draft.record(facts.BrokerJoined(broker=broker))
        draft.image_nodes.add(broker.node_id)
    _welcome(draft, {broker.node_id for broker in come})


def _lose(draft: Draft, node: int, *, is_presumed: bool = False) -> None:
    topic_deletion.pause_on(draft, node)
    draft.record(facts.BrokerLeft(node_id=node, is_presumed=is_presumed))
    led = [
        partition
        for partition, leadership in draft.cluster.leaderships.items()
        if leadership.leader == node and not draft.cluster.is_deleting(partition.topic)
    ]
    for partition in led:
        draft.move_partition(partition, PartitionPhase.OFFLINE)
    draft.bring_online(led)
    _mark_offline(draft, {node})


def _mark_offline(draft: Draft, nodes: set[int]) -> None:
    for replica in _replicas_on(draft, nodes):
        if not draft.cluster.is_deleting(replica.topic):
            draft.mark_replica_offline(replica)


def _welcome(draft: Draft, nodes: set[int]) -> None:
    if not nodes:
        return
    for replica in _replicas_on(draft, nodes):
        if not draft.cluster.is_deleting(replica.topic):
            draft.move_replica(replica, ReplicaPhase.ONLINE)
    draft.bring_online(
        [partition for partition, phase in draft.cluster.partition_phases.items() if phase is not PartitionPhase.ONLINE]
    )
    topic_deletion.retry(draft)


def apply_offline_replicas(draft: Draft, command: ReplicasOffline) -> None:
    """Move the leaderships that a living broker lost with a log directory. A replica that the
    broker has ceased to report counts as available again.
    """
    node = command.node_id
    broker = draft.cluster.brokers.get(node)
    if broker is None or broker.epoch != command.broker_epoch:
        draft.error = ErrorCode.stale_broker_epoch
        return
    known = draft.cluster.offline_replicas.get(node, frozenset())
    reported = frozenset(partition for partition in command.partitions if _is_held(draft, partition, node))
    if reported == known:
        return
    draft.record(facts.OfflineReplicasKnown(node_id=node, partitions=reported))
    lost = sorted(reported - known)
    led = [partition for partition in lost if _is_led_by(draft, partition, node)]
    for partition in led:
        draft.move_partition(partition, PartitionPhase.OFFLINE)
    draft.bring_online(led)
    for partition in lost:
        draft.mark_replica_offline(Replica(*partition, node))
    found = [partition for partition in sorted(known - reported) if _is_held(draft, partition, node)]
    for partition in found:
        draft.move_replica(Replica(*partition, node), ReplicaPhase.ONLINE)
    draft.bring_online(found)
    draft.changed_partitions.update(lost, found)


def _is_held(draft: Draft, partition: TopicPartition, node: int) -> bool:
    return Replica(*partition, node) in draft.cluster.replica_phases and not draft.cluster.is_deleting(partition.topic)


def _is_led_by(draft: Draft, partition: TopicPartition, node: int) -> bool:
    leadership = draft.cluster.leaderships.get(partition)
    return leadership is not None and leadership.leader == node


def _replicas_on(draft: Draft, nodes: set[int]) -> list[Replica]:
    return [replica for replica in draft.cluster.replica_phases if replica.node in nodes]


def list_links(draft: Draft, command: LinksListed) -> None:
    """Apply the stored links, and raise partitions for which this site is now active to the link's
    leader epoch floor. The last valid record applies to a link that cannot be decoded.
    """
    known = dict(draft.cluster.links)
    listed = {name: known.get(name, link) if name in command.problems else link for name, link in command.links.items()}
    for name in sorted(set(known) - set(listed)):
        draft.record(facts.LinkRemoved(name=name))
        draft.removed_links.add(name)
    for name in sorted(listed):
        if known.get(name) != listed[name]:
            draft.record(facts.LinkStored(link=listed[name]))
            draft.changed_links.add(name)
            draft.reasons.append(f"link {name} is at epoch {listed[name].epoch}")
    if draft.cluster.link_problems != command.problems:
        draft.record(facts.LinkProblemsRead(problems=command.problems))
    epoch_raises.raise_to_floors(draft, former_links=known)
