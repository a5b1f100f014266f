"""Topics whose znodes cannot be decoded: excluded and untouched until their znodes are repaired.

The controller decides nothing about such a topic, and brokers keep their state of it: the known
leaderships, and the logs. All other topics continue.
"""

from __future__ import annotations

from controller.core.brokers import membership
from controller.core.commands import QuarantineLookedAt
from controller.core.draft import Draft
from controller.core.partitions import epoch_raises, reassignment
from controller.core.state import facts
from controller.core.state.partition_states import PartitionPhase


def look_again(draft: Draft, command: QuarantineLookedAt) -> None:
    """Load the topics that can be decoded now, as after an election. A topic whose znode is gone is
    deleted at the brokers.
    """
    kept = draft.cluster.quarantine
    released = [topic for topic in command.topics if topic.name in kept]
    if command.problems != kept:
        draft.record(facts.QuarantineRead(problems=command.problems))
    for topic in released:
        partitions = list(topic.partitions())
        known = {
            partition: command.leaderships[partition] for partition in partitions if partition in command.leaderships
        }
        draft.record(facts.TopicReleased(topic=topic, leaderships=known))
        membership.distrust_restarted(draft, partitions)
        draft.bring_online(
            partition for partition in partitions if draft.cluster.phase_of(partition) is not PartitionPhase.ONLINE
        )
        for replica in topic.replicas():
            if replica.node not in draft.cluster.brokers:
                draft.mark_replica_offline(replica)
        reassignment.complete_in_sync(draft, partitions)
        draft.reasons.append(f"topic {topic.name!r} leaves the quarantine")
    epoch_raises.raise_to_floors(draft)
    if kept.keys() - command.problems.keys():
        # the image names the logs to delete; each broker that gets it reports its offline replicas
        # again
        draft.image_nodes.update(draft.cluster.brokers)
