"""Decides requests to create topics, add partitions and change configs.

A refused topic does not affect the others of its request. `topic_checks` has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kio.schema.errors import ErrorCode

from controller.core.commands import (
    AlterTopicConfigs,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    GrowthRequest,
    PartitionsFound,
    TopicRequest,
)
from controller.core.decisions import TopicOutcome
from controller.core.draft import Draft
from controller.core.link_claims import LinkClaim
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Replica, Topic
from controller.core.topics.placement import least_loaded_first, place
from controller.core.topics.topic_checks import (
    Refusal,
    check_absent,
    check_assignment,
    check_collision,
    check_configs,
    check_link,
    check_name,
    check_partition_count,
    check_present,
    check_replication_factor,
    check_stored_size,
)
from wire.protocol.ids import SITE_DEFAULT, TopicPartition
from wire.rules.topic_config_kinds import changed_list
from wire.rules.topic_names import is_internal_topic


def create_topics(draft: Draft, command: CreateTopics) -> None:
    """Create each topic that passes the checks. If the topic exists with the id that the request
    names, the request is a retry whose first answer was lost, and succeeds.
    """
    repeated = _repeated(request.name for request in command.topics)
    for request in command.topics:
        existing = draft.cluster.topics.get(request.name)
        if (
            existing is not None
            and existing.topic_id == request.topic_id
            and not draft.cluster.is_deleting(existing.name)
        ):
            draft.reply.append(TopicOutcome(name=existing.name, topic=existing))
            continue
        refusal = repeated.get(request.name) or _create_refusal(draft, request)
        if refusal is not None:
            _refuse(draft, request.name, refusal)
            continue
        topic = Topic(
            name=request.name,
            topic_id=request.topic_id,
            assignment=_assignment_of(draft, request),
            configs=dict(request.configs),
        )
        if (refusal := check_stored_size(topic)) is not None:
            _refuse(draft, topic.name, refusal)
            continue
        if not command.is_validate_only:
            draft.record(facts.TopicCreated(topic=topic))
            start_partitions(draft, topic.partitions())
            draft.changed_topics.add(topic.name)
        draft.reply.append(TopicOutcome(name=topic.name, topic=topic))


def start_partitions(draft: Draft, partitions: Iterable[TopicPartition]) -> None:
    """Move new partitions and their replicas through their first phases, and elect a leader if a
    replica is alive.
    """
    started = list(partitions)
    replicas = [Replica(*partition, node) for partition in started for node in draft.cluster.replicas_of(partition)]
    for partition in started:
        draft.move_partition(partition, PartitionPhase.NEW)
        draft.changed_partitions.add(partition)
    for replica in replicas:
        draft.move_replica(replica, ReplicaPhase.NEW)
    draft.bring_online(started)
    for replica in replicas:
        is_alive = replica.node in draft.cluster.brokers
        draft.move_replica(replica, ReplicaPhase.ONLINE if is_alive else ReplicaPhase.OFFLINE)


def _repeated(names: Iterable[str]) -> dict[str, Refusal]:
    return {
        name: Refusal(ErrorCode.invalid_request, f"Topic '{name}' is named {count} times in one request.")
        for name, count in Counter(names).items()
        if count > 1
    }


def _refuse(draft: Draft, name: str, refusal: Refusal) -> None:
    draft.reply.append(TopicOutcome(name=name, error=refusal.error, message=refusal.message))
    draft.reasons.append(f"{name!r} refused with {refusal.error.name}")


def _create_refusal(draft: Draft, request: TopicRequest) -> Refusal | None:
    cluster = draft.cluster
    return (
        check_name(request.name)
        or check_absent(cluster, request.name)
        or check_collision(request.name, cluster.topics)
        or check_link(cluster, request.name, request.claim)
        or _check_size(draft, request)
        or check_configs(request.configs)
    )


def _check_size(draft: Draft, request: TopicRequest) -> Refusal | None:
    cluster = draft.cluster
    if request.assignments:
        if request.partition_count != SITE_DEFAULT or request.replication_factor != SITE_DEFAULT:
            return Refusal(
                ErrorCode.invalid_request,
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at once.",
            )
        return check_partition_count(
            len(request.assignments), maximum=cluster.rules.partitions_per_request_max
        ) or check_assignment(cluster, request.assignments, first_partition=0, replication_factor=0)
    return check_replication_factor(cluster, _replication_factor(draft, request)) or check_partition_count(
        _partition_count(draft, request), maximum=cluster.rules.partitions_per_request_max
    )


def _partition_count(draft: Draft, request: TopicRequest) -> int:
    is_default = request.partition_count == SITE_DEFAULT
    return draft.cluster.rules.default_partition_count if is_default else request.partition_count


def _replication_factor(draft: Draft, request: TopicRequest) -> int:
    is_default = request.replication_factor == SITE_DEFAULT
    return draft.cluster.rules.default_replication_factor if is_default else request.replication_factor


def _assignment_of(draft: Draft, request: TopicRequest) -> Mapping[int, tuple[int, ...]]:
    if request.assignments:
        return dict(sorted(request.assignments))
    nodes = least_loaded_first(draft.cluster.load())
    return place(
        nodes=nodes,
        racks=draft.cluster.racks(),
        partition_count=_partition_count(draft, request),
        replication_factor=_replication_factor(draft, request),
        start_shift=request.start_shift,
    )


def create_partitions(draft: Draft, command: CreatePartitions) -> None:
    """Grow each topic that passes the checks; existing partitions keep leaders and data."""
    repeated = _repeated(request.name for request in command.topics)
    for request in command.topics:
        refusal = repeated.get(request.name) or _growth_refusal(draft, request)
        if refusal is not None:
            _refuse(draft, request.name, refusal)
            continue
        added = _added_assignment(draft, request)
        topic = draft.cluster.topics[request.name]
        if (refusal := check_stored_size(topic.grown(added), before=topic)) is not None:
            _refuse(draft, topic.name, refusal)
            continue
        if not command.is_validate_only:
            draft.record(facts.PartitionsAdded(topic=request.name, assignment=added))
            start_partitions(draft, (TopicPartition(request.name, index) for index in sorted(added)))
            draft.changed_topics.add(request.name)
        draft.reply.append(TopicOutcome(name=request.name, topic=draft.cluster.topics[request.name]))


def take_partitions(draft: Draft, command: PartitionsFound) -> None:
    """Start partitions that another process added to a topic's znode, and write the znode again,
    because such tools drop the topic id. Refused changes are undone in the znode: partitions of a
    topic that is mirrored to this site, and other replicas for existing partitions.
    """
    topic = draft.cluster.topics.get(command.topic)
    if topic is None or command.version <= topic.version or draft.cluster.is_deleting(topic.name):
        return
    refusal = check_link(draft.cluster, topic.name, LinkClaim())
    kept = {index: nodes for index, nodes in command.assignment.items() if index in topic.assignment}
    added = {index: nodes for index, nodes in sorted(command.assignment.items()) if index not in topic.assignment}
    problem = refusal.message if refusal is not None else ""
    if kept != topic.assignment:
        problem = "replicas of existing partitions change only by a reassignment"
    elif sorted(command.assignment) != list(range(len(command.assignment))) or not all(added.values()):
        problem = "partitions must be numbered without gaps, each with replicas"
    elif added and is_internal_topic(topic.name):
        problem = "the number of partitions of an internal topic cannot be changed"
    if problem:
        draft.reasons.append(f"not applied: {problem}")
        added = {}
    draft.record(facts.PartitionsAdded(topic=topic.name, assignment=added, over_version=command.version))
    start_partitions(draft, (TopicPartition(topic.name, index) for index in added))
    draft.changed_topics.add(topic.name)


def _growth_refusal(draft: Draft, request: GrowthRequest) -> Refusal | None:
    cluster = draft.cluster
    return (
        check_present(cluster, request.name)
        or check_link(cluster, request.name, request.claim)
        or _check_growth(cluster.topics[request.name], request)
        or check_partition_count(
            request.total_count - len(cluster.topics[request.name].assignment),
            maximum=cluster.rules.partitions_per_request_max,
        )
        or _check_growth_placement(draft, request)
    )


def _check_growth(topic: Topic, request: GrowthRequest) -> Refusal | None:
    count = len(topic.assignment)
    problem = ""
    if is_internal_topic(request.name):
        problem = f"partitions={request.total_count}; the internal topic {request.name} keeps its {count} partitions"
    elif request.total_count <= count:
        problem = f"partitions={request.total_count}; accepted is more than the {count} that topic {request.name} has"
    return Refusal(ErrorCode.invalid_partitions, problem) if problem else None


def _check_growth_placement(draft: Draft, request: GrowthRequest) -> Refusal | None:
    topic = draft.cluster.topics[request.name]
    if not request.assignments:
        return check_replication_factor(draft.cluster, topic.replication_factor)
    first = len(topic.assignment)
    wanted = request.total_count - first
    if len(request.assignments) != wanted:
        return Refusal(
            ErrorCode.invalid_replica_assignment,
            f"{len(request.assignments)} assignments for {wanted} new partitions; accepted is one for each",
        )
    return check_assignment(
        draft.cluster,
        tuple(enumerate(request.assignments, first)),
        first_partition=first,
        replication_factor=topic.replication_factor,
    )


def _added_assignment(draft: Draft, request: GrowthRequest) -> dict[int, tuple[int, ...]]:
    topic = draft.cluster.topics[request.name]
    first = len(topic.assignment)
    if request.assignments:
        return dict(enumerate(request.assignments, first))
    nodes = least_loaded_first(draft.cluster.load())
    return place(
        nodes=nodes,
        racks=draft.cluster.racks(),
        partition_count=request.total_count - first,
        replication_factor=topic.replication_factor,
        first_partition=first,
        start_index=-first % len(nodes),
        start_shift=request.start_shift,
    )


def alter_topic_configs(draft: Draft, command: AlterTopicConfigs) -> None:
    """Replace the overrides of each topic that passes the checks."""
    repeated = _repeated(change.name for change in command.changes)
    for change in command.changes:
        configs = _changed_configs(draft, change)
        refusal = (
            repeated.get(change.name)
            or check_present(draft.cluster, change.name)
            or check_link(draft.cluster, change.name, change.claim)
            or check_configs(configs)
        )
        if refusal is not None:
            _refuse(draft, change.name, refusal)
            continue
        if not command.is_validate_only and configs != draft.cluster.topics[change.name].configs:
            draft.record(facts.TopicConfigsReplaced(topic=change.name, configs=configs))
            draft.changed_topics.add(change.name)
            # the changed config may allow an unclean election, so partitions without a leader get
            # another try
            draft.bring_online(draft.cluster.topics[change.name].partitions())
        draft.reply.append(TopicOutcome(name=change.name, topic=draft.cluster.topics[change.name]))


def _changed_configs(draft: Draft, change: ConfigChange) -> dict[str, str]:
    topic = draft.cluster.topics.get(change.name)
    kept = {} if topic is None or change.replaces_all else topic.configs
    merged = {**kept, **change.set_configs}
    for one in change.lists:
        current = merged.get(one.name, one.inherited)
        merged[one.name] = changed_list(current, one.items, is_removal=one.is_removal)
    return {name: value for name, value in merged.items() if name not in change.remove}
