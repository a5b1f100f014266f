"""Moves partitions to other replicas while clients use them (KIP-455). Each partition of a request
begins, completes or is cancelled independently.

    begin ─▶ replicas = wanted + going, the new ones copy ─▶ all wanted are in sync ─▶ a wanted one leads, replicas = wanted
         ╰─▶ cancel: replicas as they were

The reassignment is stored with the topic's assignment, so the next controller continues it.
Leaderships are written before the assignment: if a controller dies between the two writes, its
successor finds the former replicas, and continues the reassignment or gets the request again. A
broker deletes a replica that its image does not assign to it and names as removed. Removals from
brokers that are not registered are stored with the assignment, for the time when they return.

Invariant: the removal of a replica raises the leader epoch, even if the leader stays. If the broker
gets the replica again, its log is empty; a late fetch for the former log has an older epoch, and
the leader refuses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kio.schema.errors import ErrorCode

from controller.core import elections
from controller.core.commands import AlterReassignments
from controller.core.draft import Draft
from controller.core.elections import Election, NoLeader
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import NewReplicas, Replica
from controller.core.topics.topic_checks import Refusal, check_stored_size
from wire.protocol.ids import NO_NODE, TopicPartition

Changes = dict[str, dict[int, NewReplicas]]


def alter(draft: Draft, command: AlterReassignments) -> None:
    """Begin or cancel each reassignment that passes the checks; one that needs no copying is
    completed at once.
    """
    begun: Changes = defaultdict(dict)
    cancelled: list[TopicPartition] = []
    refusals: dict[TopicPartition, Refusal] = {}
    for partition, target in command.targets:
        refusal = _refusal(draft, partition, target) or _factor_refusal(draft, partition, target, command)
        if refusal is not None:
            refusals[partition] = refusal
        elif target is None:
            cancelled.append(partition)
        else:
            begun[partition.topic][partition.partition] = _widened(draft, partition, target)
    for topic in sorted(begun):
        if (refusal := _size_refusal(draft, topic, begun[topic])) is not None:
            refusals.update((TopicPartition(topic, index), refusal) for index in begun.pop(topic))
    for partition, _ in command.targets:
        refusal = refusals.get(partition)
        draft.answer(partition, *((refusal.error, refusal.message) if refusal else (ErrorCode.none, "")))
    _begin(draft, begun)
    # cancelled after the begun ones: a partition is in one of the two lists only
    _narrow(draft, {partition: _original(draft, partition) for partition in cancelled})
    moved = [TopicPartition(topic, index) for topic, changes in begun.items() for index in changes]
    # a partition without a leader yet has nothing to copy
    draft.bring_online([partition for partition in moved if partition not in draft.cluster.leaderships])
    complete_in_sync(draft, moved)


def _original(draft: Draft, partition: TopicPartition) -> tuple[int, ...]:
    topic = draft.cluster.topics[partition.topic]
    adding = topic.adding.get(partition.partition, ())
    return tuple(node for node in topic.assignment[partition.partition] if node not in adding)


def _widened(draft: Draft, partition: TopicPartition, target: tuple[int, ...]) -> NewReplicas:
    original = _original(draft, partition)
    removing = tuple(node for node in original if node not in target)
    adding = tuple(node for node in target if node not in original)
    # the wanted replicas come first, so that the preferred leader is one of them at once
    return NewReplicas(replicas=target + removing, adding=adding, removing=removing)


def _refusal(draft: Draft, partition: TopicPartition, target: tuple[int, ...] | None) -> Refusal | None:
    cluster = draft.cluster
    if partition not in cluster.partition_phases or cluster.is_deleting(partition.topic):
        return Refusal(ErrorCode.unknown_topic_or_partition, "the partition does not exist")
    if target is None:
        return _cancel_refusal(draft, partition)
    problem = ""
    if not target:
        problem = "The replica list is empty."
    elif len(set(target)) != len(target):
        problem = f"A broker is named twice: {list(target)}."
    elif unknown := sorted(set(target) - cluster.brokers.keys()):
        problem = f"Brokers that are not alive: {unknown}."
    else:
        known = cluster.leaderships.get(partition)
        # replicas of a reassignment that this one replaces go at once, with what they alone have
        if known is not None and not set(known.isr) & set(_widened(draft, partition, target).replicas):
            problem = (
                f"Only replicas that are not wanted any more are in sync, and records would be lost: {list(known.isr)}."
            )
    if problem:
        return Refusal(ErrorCode.invalid_replica_assignment, problem)
    return None  # each site places its own replicas, also for topics that a link mirrors to it


def _factor_refusal(
    draft: Draft, partition: TopicPartition, target: tuple[int, ...] | None, command: AlterReassignments
) -> Refusal | None:
    if target is None or not command.must_keep_replication_factor:
        return None
    factor = len(_original(draft, partition))
    if len(target) == factor:
        return None
    message = f"The replication factor is changed from {factor} to {len(target)}, which the request does not allow."
    return Refusal(ErrorCode.invalid_replication_factor, message)


def _size_refusal(draft: Draft, topic: str, partitions: Mapping[int, NewReplicas]) -> Refusal | None:
    before = draft.cluster.topics[topic]
    after = _reassigned(draft, topic, partitions).of(before)
    return check_stored_size(after, before=before, error=ErrorCode.invalid_replica_assignment)


def _cancel_refusal(draft: Draft, partition: TopicPartition) -> Refusal | None:
    if not draft.cluster.topics[partition.topic].is_reassigning(partition.partition):
        return Refusal(ErrorCode.no_reassignment_in_progress, "No reassignment is in progress.")
    known = draft.cluster.leaderships.get(partition)
    if known is not None and not set(known.isr) & set(_original(draft, partition)):
        message = "No former replica is in sync: a cancellation would lose records."
        return Refusal(ErrorCode.invalid_replica_assignment, message)
    return None


def _begin(draft: Draft, begun: Mapping[str, Mapping[int, NewReplicas]]) -> None:
    for topic in sorted(begun):
        former = {index: draft.cluster.topics[topic].assignment[index] for index in begun[topic]}
        for index, new in begun[topic].items():
            _write_leadership(draft, TopicPartition(topic, index), new.replicas)
        draft.record(_reassigned(draft, topic, begun[topic]))
        for index, new in begun[topic].items():
            _start_replicas(draft, topic, index, set(new.replicas) - set(former[index]))
            _drop_replicas(draft, topic, index, set(former[index]) - set(new.replicas))
        draft.reasons.append(f"{topic!r}: reassignment begins for partitions {sorted(begun[topic])}")


def _reassigned(draft: Draft, topic: str, partitions: Mapping[int, NewReplicas]) -> facts.PartitionsReassigned:
    cluster = draft.cluster
    return facts.PartitionsReassigned(
        topic=topic,
        partitions=dict(partitions),
        # a broker that is presumed dead may go on under its registration, so it counts as here
        here=frozenset(cluster.brokers) | cluster.presumed_dead.keys() | cluster.unregistered,
        registrations_zxid=cluster.registrations_zxid,
    )


def _start_replicas(draft: Draft, topic: str, index: int, nodes: Iterable[int]) -> None:
    for node in sorted(nodes):
        replica = Replica(topic, index, node)
        draft.move_replica(replica, ReplicaPhase.NEW)
        is_alive = node in draft.cluster.brokers
        draft.move_replica(replica, ReplicaPhase.ONLINE if is_alive else ReplicaPhase.OFFLINE)


def _drop_replicas(draft: Draft, topic: str, index: int, nodes: Iterable[int]) -> None:
    """Remove replicas. Their brokers delete the logs when they get the image; the reassignment does
    not wait for that.
    """
    for node in sorted(nodes):
        for phase in (
            ReplicaPhase.OFFLINE,
            ReplicaPhase.DELETION_STARTED,
            ReplicaPhase.DELETION_SUCCESSFUL,
            ReplicaPhase.NON_EXISTENT,
        ):
            draft.move_replica(Replica(topic, index, node), phase)


def _write_leadership(draft: Draft, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
    """Write a leadership whose leader and in-sync replicas are among `replicas`. An unchanged state
    is written again, so that the partition epoch distinguishes images with the former replicas from
    images with the new ones. Call it before the new assignment is recorded.
    """
    known = draft.cluster.leaderships.get(partition)
    if known is None:
        draft.changed_partitions.add(partition)
        return
    isr = tuple(node for node in known.isr if node in replicas)
    if known.leader in replicas:
        # replicas are only added, so no removed replica can send a late fetch: the epoch stays
        if set(draft.cluster.replicas_of(partition)) <= set(replicas):
            draft.keep_leader(partition, isr)
        else:
            draft.lead(partition, known.leader, isr)
        return
    election = _elect(draft, partition, replicas, isr)
    if isinstance(election, NoLeader):
        draft.move_partition(partition, PartitionPhase.OFFLINE)
        draft.lead(partition, NO_NODE, isr or known.isr)
        draft.reasons.append(f"{partition} has no leader: {election.reason}")
        return
    draft.lead(partition, election.leader, election.isr)
    draft.move_partition(partition, PartitionPhase.ONLINE)


def _elect(
    draft: Draft, partition: TopicPartition, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> Election | NoLeader:
    return elections.elect_reassigned(target_replicas=replicas, isr=isr, live=draft.cluster.electable_for(partition))


def complete_in_sync(draft: Draft, partitions: Iterable[TopicPartition]) -> None:
    """Complete each reassignment whose wanted replicas are all in sync, if one of them can lead."""
    cluster = draft.cluster
    done: dict[TopicPartition, tuple[int, ...]] = {}
    for partition in partitions:
        known = cluster.leaderships.get(partition)
        if known is None or cluster.is_deleting(partition.topic):
            continue
        if not cluster.topics[partition.topic].is_reassigning(partition.partition):
            continue
        target = cluster.target_of(partition)
        can_lead = known.leader in target or isinstance(_elect(draft, partition, target, known.isr), Election)
        if set(target) <= set(known.isr) and can_lead:
            done[partition] = target
    _narrow(draft, done)


def _narrow(draft: Draft, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    """Remove the former replicas: leaderships first, the assignment last."""
    narrowed: Changes = defaultdict(dict)
    for partition, target in targets.items():
        _write_leadership(draft, partition, target)
        narrowed[partition.topic][partition.partition] = NewReplicas(replicas=target)
    for topic in sorted(narrowed):
        former = {index: draft.cluster.topics[topic].assignment[index] for index in narrowed[topic]}
        draft.record(_reassigned(draft, topic, narrowed[topic]))
        for index, new in narrowed[topic].items():
            _drop_replicas(draft, topic, index, set(former[index]) - set(new.replicas))
        draft.reasons.append(f"{topic!r}: reassignment is complete for partitions {sorted(narrowed[topic])}")
