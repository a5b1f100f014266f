"""Translates requests of the Controller service to commands, and outcomes to replies."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kio.schema.errors import ErrorCode

from controller.brokers.images import partition_state
from controller.core import commands as ask
from controller.core.decisions import Decision, PartitionOutcome, TopicOutcome
from controller.core.link_claims import LinkClaim
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Topic
from controller.event_loop import ActiveController
from runtime.chance import drawn_below
from wire.control import controller_pb2 as pb
from wire.control.clients import new_topic_id
from wire.protocol.ids import TopicPartition
from wire.znodes.topic_znodes import TOPIC_ID_BYTES


def brokers_awaited(cluster: Cluster, topic_ids: Collection[bytes]) -> dict[bytes, set[int]]:
    """The topics among these that are not deleted yet, with the brokers that their deletion waits
    for.
    """
    return {
        cluster.topics[name].topic_id: cluster.awaited_for_deletion(name)
        for name in cluster.deletions
        if cluster.topics[name].topic_id in topic_ids
    }


def still_awaited(cluster: Cluster, nodes: set[int]) -> str:
    """The message about a deletion that takes longer than the client waits."""
    absent = sorted(nodes - cluster.brokers.keys())
    if not absent:
        return f"The deletion continues; brokers {sorted(nodes)} have not confirmed it yet."
    return (
        f"The deletion continues when brokers {absent}, which hold replicas and are not registered, are started;"
        " if one of them will not return, give it up: antipode brokers unregister ID"
    )


def pending_deletions(cluster: Cluster) -> list[pb.PendingDeletion]:
    """Topics whose deletion waits for brokers that are not registered."""
    return [
        pb.PendingDeletion(
            topic=name, absent_brokers=sorted(cluster.awaited_for_deletion(name) - cluster.brokers.keys())
        )
        for name in sorted(cluster.deletions)
    ]


def quarantines(cluster: Cluster) -> list[pb.Quarantine]:
    """Topics and links whose znodes cannot be parsed."""
    found = [("topic", cluster.quarantine), ("link", cluster.link_problems)]
    return [
        pb.Quarantine(kind=kind, name=name, problem=problem)
        for kind, problems in found
        for name, problem in sorted(problems.items())
    ]


def refused_ids(request: pb.CreateTopicsRequest) -> list[pb.TopicResult]:
    """Outcomes for a request that has a topic id of the wrong length; such a request is refused as
    a whole.
    """
    # Only mirrors and restores send ids, of topics that they copy; 0 bytes: the site draws one.
    if all(len(topic.topic_id) in (0, TOPIC_ID_BYTES) for topic in request.topics):
        return []
    message = f"A topic id has {TOPIC_ID_BYTES} bytes."
    return [
        pb.TopicResult(name=topic.name, error_code=ErrorCode.invalid_request, error_message=message)
        for topic in request.topics
    ]


def topic_request(topic: pb.NewTopic) -> ask.TopicRequest:
    """One topic to create."""
    return ask.TopicRequest(
        name=topic.name,
        topic_id=topic.topic_id or new_topic_id(),
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=dict(topic.configs),
        assignments=tuple((item.partition, tuple(item.replicas)) for item in topic.assignments),
        claim=LinkClaim(link=topic.link, epoch=topic.link_epoch),
        # Drawn here, because the core that places replicas uses no chance.
        start_shift=drawn_below(1 << 16),
    )


def growth_request(topic: pb.NewPartitions) -> ask.GrowthRequest:
    """Partitions to add to one topic."""
    ordered = sorted(topic.assignments, key=lambda item: item.partition)
    return ask.GrowthRequest(
        name=topic.name,
        total_count=topic.total_count,
        assignments=tuple(tuple(item.replicas) for item in ordered),
        claim=LinkClaim(link=topic.link, epoch=topic.link_epoch),
        start_shift=drawn_below(1 << 16),
    )


def config_change(change: pb.TopicConfigChange) -> ask.ConfigChange:
    """A change of the configs of one topic."""
    return ask.ConfigChange(
        name=change.name,
        set_configs=dict(change.set),
        remove=tuple(change.remove),
        lists=tuple(
            ask.ListChange(name=one.name, items=tuple(one.items), inherited=one.inherited, is_removal=one.is_removal)
            for one in change.lists
        ),
        replaces_all=change.replaces_all,
        claim=LinkClaim(link=change.link, epoch=change.link_epoch),
    )


def topic_results(reply: Iterable[TopicOutcome]) -> Iterable[pb.TopicResult]:
    """The outcome of each topic."""
    return [topic_result(outcome, outcome.topic) for outcome in reply]


def topic_result(outcome: TopicOutcome, topic: Topic | None) -> pb.TopicResult:
    """The outcome of one topic, with its state after the request."""
    if topic is None:
        return pb.TopicResult(name=outcome.name, error_code=outcome.error, error_message=outcome.message)
    return pb.TopicResult(
        name=outcome.name,
        topic_id=topic.topic_id,
        error_code=outcome.error,
        error_message=outcome.message,
        partition_count=len(topic.assignment),
        replication_factor=topic.replication_factor,
        configs=dict(topic.configs),
    )


def proposal(partition: pb.ProposedPartition) -> ask.IsrProposal:
    """A leader's proposal of in-sync replicas."""
    return ask.IsrProposal(
        partition=TopicPartition(partition.topic, partition.partition),
        topic_id=partition.topic_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((member.node_id, member.broker_epoch) for member in partition.isr),
    )


def altered(active: ActiveController, outcome: PartitionOutcome) -> pb.AlteredPartition:
    """The outcome of one proposal, with the state that is in force."""
    partition = outcome.partition
    answer = pb.AlteredPartition(topic=partition.topic, partition=partition.partition, error_code=outcome.error)
    if partition in active.cluster.leaderships:
        answer.state.CopyFrom(partition_state(active.cluster, partition))
    return answer


def partition_results(decision: Decision) -> pb.PartitionResultsReply:
    """The outcome of each partition."""
    return pb.PartitionResultsReply(
        results=[
            pb.PartitionResult(
                topic=outcome.partition.topic,
                partition=outcome.partition.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
            for outcome in decision.partitions
        ]
    )
