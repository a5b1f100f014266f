"""In-sync replicas that leaders propose: accepted if based on the present state (KIP-497).

A proposal names the leader epoch and the partition epoch that its leader knows. The controller
refuses an outdated proposal and returns the present epochs. So a repeated request, a replaced
leader, or a leader that missed a change cannot undo a later change.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.commands import AlterPartitions, IsrProposal
from controller.core.draft import Draft
from controller.core.partitions import reassignment
from controller.core.state.site_values import Leadership
from wire.protocol.ids import UNCHECKED_EPOCH


def alter_partitions(draft: Draft, command: AlterPartitions) -> None:
    """Apply each proposal that passes the checks, and complete reassignments that waited for it."""
    broker = draft.cluster.brokers.get(command.node_id)
    if broker is None or broker.epoch != command.broker_epoch:
        for proposal in command.proposals:
            draft.answer(proposal.partition, ErrorCode.stale_broker_epoch)
        return
    changed = []
    for proposal in command.proposals:
        error = _error_of(draft, command.node_id, proposal)
        draft.answer(proposal.partition, error)
        if error is ErrorCode.none:
            members = {node for node, _ in proposal.isr}
            replicas = draft.cluster.replicas_of(proposal.partition)
            draft.keep_leader(proposal.partition, tuple(node for node in replicas if node in members))
            changed.append(proposal.partition)
    reassignment.complete_in_sync(draft, changed)


def _error_of(draft: Draft, node_id: int, proposal: IsrProposal) -> ErrorCode:
    cluster = draft.cluster
    topic = cluster.topics.get(proposal.partition.topic)
    known = cluster.leaderships.get(proposal.partition)
    if topic is None or topic.topic_id != proposal.topic_id or known is None or cluster.is_deleting(topic.name):
        return ErrorCode.unknown_topic_or_partition
    stale = _stale(known, node_id, proposal)
    if stale is not ErrorCode.none:
        return stale
    members = [node for node, _ in proposal.isr]
    is_sound = known.leader in members and len(set(members)) == len(members)
    if not is_sound or not set(members) <= set(cluster.replicas_of(proposal.partition)):
        return ErrorCode.invalid_request
    for node, broker_epoch in proposal.isr:
        broker = cluster.brokers.get(node)
        is_known = broker is not None and broker_epoch in (UNCHECKED_EPOCH, broker.epoch)
        is_lost = cluster.is_replica_offline(proposal.partition, node)
        if not is_known or is_lost or (node in cluster.leaving and node not in known.isr):
            return ErrorCode.ineligible_replica
    return ErrorCode.none


def _stale(known: Leadership, node_id: int, proposal: IsrProposal) -> ErrorCode:
    if proposal.leader_epoch < known.leader_epoch or known.leader != node_id:
        return ErrorCode.fenced_leader_epoch
    if proposal.leader_epoch > known.leader_epoch:
        return ErrorCode.unknown_leader_epoch
    if proposal.partition_epoch != known.partition_epoch:
        return ErrorCode.invalid_update_version
    return ErrorCode.none
