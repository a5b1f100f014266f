"""Deletes topics replica by replica; a deletion is complete when the last replica is gone.

    request ─▶ mark (durable) ─▶ replicas: Offline ─▶ DeletionStarted ─▶ brokers asked ─▶ each answers: DeletionSuccessful
        dead broker, or an answer with an error: DeletionIneligible, tried again later
        a broker that was unregistered: DeletionSuccessful, without being asked
    all successful ─▶ znodes of the topic and the mark go, in that order

If a controller dies before the last step, the mark remains, and the next controller starts the
deletion again. A repeated request does no harm: a broker without the log answers success.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from controller.core.commands import DeleteTopics, DeletionsAnswered, DeletionsMarked
from controller.core.decisions import TopicOutcome
from controller.core.draft import Draft
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Replica
from controller.core.topics.topic_checks import Refusal, check_link, check_present


def delete_topics(draft: Draft, command: DeleteTopics) -> None:
    """Begin the deletion of each named topic that passes the checks. A request for a topic that is
    being deleted waits for that deletion.
    """
    names_by_id = {topic.topic_id: topic.name for topic in draft.cluster.topics.values()}
    for topic_id in command.topic_ids:
        if topic_id not in names_by_id:
            message = "This server does not host this topic ID."
            draft.reply.append(TopicOutcome(name="", error=ErrorCode.unknown_topic_id, message=message))
    known = [names_by_id[topic_id] for topic_id in command.topic_ids if topic_id in names_by_id]
    for name in dict.fromkeys([*command.names, *known]):
        refusal = _refusal(draft, name, command)
        if refusal is not None:
            draft.reply.append(TopicOutcome(name=name, error=refusal.error, message=refusal.message))
            continue
        draft.reply.append(TopicOutcome(name=name, topic=draft.cluster.topics[name]))
        if not draft.cluster.is_deleting(name):
            draft.record(facts.TopicDeletionRequested(topic=name))
            begin(draft, name)


def _refusal(draft: Draft, name: str, command: DeleteTopics) -> Refusal | None:
    if not draft.cluster.rules.may_delete_topics:
        return Refusal(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
    if draft.cluster.is_deleting(name):
        return None
    return check_present(draft.cluster, name) or check_link(draft.cluster, name, command.claim)


def take_marks(draft: Draft, command: DeletionsMarked) -> None:
    """Begin the deletions that another process has marked, and remove marks of topics that cannot
    be deleted.
    """
    for name in command.topics:
        if draft.cluster.is_deleting(name) or name in draft.cluster.quarantine:
            continue
        if name not in draft.cluster.topics or not draft.cluster.rules.may_delete_topics:
            draft.record(facts.DeletionMarkDropped(topic=name))
            draft.reasons.append(f"the deletion marker of {name!r} was removed")
            continue
        draft.record(facts.TopicDeletionRequested(topic=name, must_store=False))
        begin(draft, name)


def begin(draft: Draft, name: str) -> None:
    """Take the topic out of service and ask the living brokers to delete; finishes at once when no
    broker has replicas of it.
    """
    topic = draft.cluster.topics[name]
    for partition in topic.partitions():
        draft.move_partition(partition, PartitionPhase.OFFLINE)
    _ask(draft, topic.replicas())
    draft.deleted_topics[name] = topic.topic_id
    _finish_if_complete(draft, name)


def _ask(draft: Draft, replicas: Iterable[Replica]) -> None:
    for replica in replicas:
        phase = draft.cluster.replica_phase_of(replica)
        if phase is ReplicaPhase.DELETION_SUCCESSFUL:
            continue
        if phase is not ReplicaPhase.DELETION_STARTED:
            draft.move_replica(replica, ReplicaPhase.OFFLINE)
        if replica.node in draft.cluster.unregistered:
            draft.move_replica(replica, ReplicaPhase.DELETION_STARTED)
            draft.move_replica(replica, ReplicaPhase.DELETION_SUCCESSFUL)
            continue
        is_alive = replica.node in draft.cluster.brokers
        target = ReplicaPhase.DELETION_STARTED if is_alive else ReplicaPhase.DELETION_INELIGIBLE
        draft.move_replica(replica, target)


def take_answers(draft: Draft, command: DeletionsAnswered) -> None:
    """Record that a broker has applied deletions. Answers of an earlier registration of the broker
    are ignored.
    """
    broker = draft.cluster.brokers.get(command.node_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return
    for name in sorted(draft.cluster.deletions):
        topic = draft.cluster.topics[name]
        if topic.topic_id not in command.topic_ids:
            continue
        for replica in topic.replicas():
            if replica.node != command.node_id:
                continue
            if draft.cluster.replica_phase_of(replica) is not ReplicaPhase.DELETION_STARTED:
                continue
            has_failed = replica.topic_partition in command.failed
            target = ReplicaPhase.DELETION_INELIGIBLE if has_failed else ReplicaPhase.DELETION_SUCCESSFUL
            draft.move_replica(replica, target)
        _finish_if_complete(draft, name)


def retry(draft: Draft) -> None:
    """Ask again where a deletion failed and the broker is alive."""
    for name in sorted(draft.cluster.deletions):
        topic = draft.cluster.topics[name]
        failed = [
            replica
            for replica in topic.replicas()
            if draft.cluster.replica_phase_of(replica) is ReplicaPhase.DELETION_INELIGIBLE
            and replica.node in draft.cluster.brokers
        ]
        if failed:
            _ask(draft, failed)
            draft.deleted_topics[name] = topic.topic_id


def pause_on(draft: Draft, node_id: int) -> None:
    """Pause the deletions that a lost broker has not confirmed until it returns."""
    for name in draft.cluster.deletions:
        for replica in draft.cluster.topics[name].replicas():
            if replica.node != node_id:
                continue
            if draft.cluster.replica_phase_of(replica) is ReplicaPhase.DELETION_STARTED:
                draft.move_replica(replica, ReplicaPhase.DELETION_INELIGIBLE)


def give_up(draft: Draft, node_id: int) -> None:
    """Complete deletions without an unregistered broker. If it registers again, it deletes those
    logs when it gets its first image.
    """
    for name in sorted(draft.cluster.deletions):
        _ask(draft, [replica for replica in draft.cluster.topics[name].replicas() if replica.node == node_id])
        _finish_if_complete(draft, name)


def _finish_if_complete(draft: Draft, name: str) -> None:
    topic = draft.cluster.topics[name]
    replicas = list(topic.replicas())
    if any(draft.cluster.replica_phase_of(replica) is not ReplicaPhase.DELETION_SUCCESSFUL for replica in replicas):
        return
    for replica in replicas:
        draft.move_replica(replica, ReplicaPhase.NON_EXISTENT)
    for partition in topic.partitions():
        draft.move_partition(partition, PartitionPhase.NON_EXISTENT)
    draft.record(facts.TopicDeleted(topic=name))
    draft.reasons.append(f"topic {name!r} is deleted")
