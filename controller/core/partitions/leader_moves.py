"""Leaderships that move without a failure: controlled shutdown, requested elections, balancing.

`core/elections.py` chooses the leader; this module chooses the partitions, and the outcome for the
client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from controller.core import elections
from controller.core.commands import ControlledShutdown, ElectLeaders, UncleanElectionRead
from controller.core.draft import Draft
from controller.core.elections import NoLeader
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase
from wire.protocol.ids import TopicPartition


def prepare_shutdown(draft: Draft, command: ControlledShutdown) -> None:
    """Move the broker's leaderships to other in-sync replicas, and remove it from the in-sync
    replicas. The reply lists the partitions that cannot be moved.
    """
    broker = draft.cluster.brokers.get(command.node_id)
    if broker is None or broker.epoch != command.broker_epoch:
        draft.error = ErrorCode.stale_broker_epoch
        return
    if command.node_id not in draft.cluster.leaving:
        draft.record(facts.BrokerLeaving(node_id=command.node_id))
    for partition, leadership in tuple(draft.cluster.leaderships.items()):
        is_alone = len(draft.cluster.replicas_of(partition)) == 1
        if command.node_id in leadership.isr and not is_alone and not draft.cluster.is_deleting(partition.topic):
            _leave(draft, partition, command.node_id)


def _leave(draft: Draft, partition: TopicPartition, node: int) -> None:
    cluster = draft.cluster
    known = cluster.leaderships[partition]
    if known.leader != node:
        staying = tuple(other for other in known.isr if other != node)
        if staying:
            draft.keep_leader(partition, staying)
        return
    election = elections.elect_at_controlled_shutdown(
        replicas=cluster.replicas_of(partition),
        isr=known.isr,
        live=cluster.electable_for(partition),
        leaving=cluster.leaving,
    )
    if isinstance(election, NoLeader):
        draft.answer(partition, ErrorCode.eligible_leaders_not_available, election.reason)
        draft.reasons.append(f"{partition} stays at the stopping broker {node}: {election.reason}")
        return
    draft.lead(partition, election.leader, election.isr)


def elect_leaders(draft: Draft, command: ElectLeaders) -> None:
    """Elections that a client requests. A request for all partitions gets no outcome for partitions
    that need no election.
    """
    is_all = command.partitions is None
    for partition in sorted(draft.cluster.partition_phases) if command.partitions is None else command.partitions:
        known = draft.cluster.leaderships.get(partition)
        if partition not in draft.cluster.partition_phases or draft.cluster.is_deleting(partition.topic):
            if not is_all:
                draft.answer(partition, ErrorCode.unknown_topic_or_partition, f"partition {partition} does not exist")
            continue
        if known is None:
            error, message = ErrorCode.eligible_leaders_not_available, "The partition has never had a leader."
        elif command.is_unclean:
            error, message = _elect_unclean(draft, partition)
        else:
            error, message = _elect_preferred(draft, partition)
        if error is not ErrorCode.election_not_needed or not is_all:
            draft.answer(partition, error, message)


def take_unclean_election(draft: Draft, command: UncleanElectionRead) -> None:
    """Elect leaders for partitions without one, when their configs allow that records are lost."""
    if command.is_allowed == draft.cluster.altered_unclean_election:
        return
    draft.record(facts.UncleanElectionAltered(is_allowed=command.is_allowed))
    draft.bring_online(draft.cluster.offline_partitions())


def _elect_unclean(draft: Draft, partition: TopicPartition) -> tuple[ErrorCode, str]:
    if draft.cluster.phase_of(partition) is PartitionPhase.ONLINE:
        return ErrorCode.election_not_needed, "The partition has a leader."
    draft.bring_online([partition], may_be_unclean=True)
    if draft.cluster.phase_of(partition) is PartitionPhase.ONLINE:
        return ErrorCode.none, ""
    return ErrorCode.eligible_leaders_not_available, "No replica is alive."


def _elect_preferred(draft: Draft, partition: TopicPartition) -> tuple[ErrorCode, str]:
    cluster = draft.cluster
    known = cluster.leaderships[partition]
    replicas = cluster.target_of(partition)
    if known.leader == replicas[0]:
        return ErrorCode.election_not_needed, "The preferred replica is already the leader."
    election = elections.elect_preferred(
        leader=known.leader, replicas=replicas, isr=known.isr, live=cluster.electable_for(partition)
    )
    if isinstance(election, NoLeader):
        return ErrorCode.preferred_leader_not_available, election.reason
    draft.lead(partition, election.leader, election.isr)
    draft.move_partition(partition, PartitionPhase.ONLINE)
    return ErrorCode.none, ""


def balance(draft: Draft, imbalance_percentage: int) -> None:
    """Elect the preferred leaders of a broker when other brokers lead more than this percentage of
    its preferred partitions.

    No leadership moves during a reassignment, as in Apache Kafka, so that it does not compete with
    the copying.
    """
    wanted = (topic for name, topic in draft.cluster.topics.items() if not draft.cluster.is_deleting(name))
    if any(topic.adding or topic.removing for topic in wanted):
        draft.reasons.append("a reassignment is under way")
        return
    preferred: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in draft.cluster.leaderships:
        if not draft.cluster.is_deleting(partition.topic):
            preferred[draft.cluster.target_of(partition)[0]].append(partition)
    for node in sorted(preferred.keys() & draft.cluster.electable()):
        elsewhere = [partition for partition in preferred[node] if draft.cluster.leaderships[partition].leader != node]
        if len(elsewhere) * 100 > imbalance_percentage * len(preferred[node]):
            _bring_home(draft, elsewhere, node)


def _bring_home(draft: Draft, partitions: Iterable[TopicPartition], node: int) -> None:
    moved = 0
    for partition in partitions:
        if draft.cluster.phase_of(partition) is PartitionPhase.ONLINE:
            error, _ = _elect_preferred(draft, partition)
            moved += error is ErrorCode.none
    if moved:
        draft.reasons.append(f"{moved} partitions return to their preferred leader {node}")
