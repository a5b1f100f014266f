"""A decision in the making: a copy of the cluster on which each new fact takes effect at once.

The rules of `membership`, `topic_admin` and `topic_deletion` write their facts here, so that a
later rule sees what an earlier one decided. The real cluster is unchanged; `finish` returns the
facts as a `Decision`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from controller.core import elections
from controller.core.decisions import (
    AclOutcome,
    Decision,
    Effect,
    PartitionOutcome,
    Publish,
    PublishImage,
    QuotaOutcome,
    TopicOutcome,
)
from controller.core.elections import Election, NoLeader
from controller.core.state import facts
from controller.core.state.cluster import Cluster
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import EpochRaise, Leadership, Replica
from wire.protocol.ids import NO_NODE, TopicPartition
from wire.rules.acls import ResourcePattern
from wire.rules.client_quotas import QuotaEntity

REASONS_SHOWN_MAX = 5
"""Bounds the log line of a decision about thousands of partitions."""


class Draft:
    """Collects facts, and the topics and partitions to publish."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster.copy()
        self.reply: list[TopicOutcome] = []
        self.partition_reply: list[PartitionOutcome] = []
        self.error = ErrorCode.none
        self.message = ""
        self.reasons: list[str] = []
        self.changed_topics: set[str] = set()
        self.changed_partitions: set[TopicPartition] = set()
        self.raises: list[EpochRaise] = []
        self.deleted_topics: dict[str, bytes] = {}
        self.changed_links: set[str] = set()
        self.removed_links: set[str] = set()
        self.changed_quotas: set[QuotaEntity] = set()
        self.changed_scram_users: set[str] = set()
        self.changed_acls: set[ResourcePattern] = set()
        self.changed_tokens: set[str] = set()
        self.changed_group_configs: set[str] = set()
        self.quota_reply: list[QuotaOutcome] = []
        self.acl_reply: list[AclOutcome] = []
        self.has_membership_changed = False
        self.image_nodes: set[int] = set()
        self._facts: list[facts.Fact] = []
        self._floors: dict[str, int] = {}

    def record(self, fact: facts.Fact) -> None:
        """Add a fact to the decision, and apply it to the draft's cluster."""
        self.cluster.apply(fact)
        self._facts.append(fact)
        if isinstance(fact, facts.LinkStored | facts.LinkRemoved):
            self._floors.clear()

    def move_partition(self, partition: TopicPartition, phase: PartitionPhase) -> None:
        """Move a partition to a phase; adds no fact if it is in that phase."""
        if self.cluster.phase_of(partition) is not phase:
            self.record(facts.PartitionMoved(partition=partition, phase=phase))

    def move_replica(self, replica: Replica, phase: ReplicaPhase) -> None:
        """Move a replica to a phase; adds no fact if it is in that phase."""
        if self.cluster.replica_phase_of(replica) is not phase:
            self.record(facts.ReplicaMoved(replica=replica, phase=phase))

    def lead(self, partition: TopicPartition, leader: int, isr: tuple[int, ...], *, is_unclean: bool = False) -> None:
        """Write a leadership with the next leader epoch, at or above the floor of the topic's
        link.
        """
        known = self.cluster.leaderships.get(partition)
        floor = self._floor(partition.topic)
        leadership = Leadership(
            leader=leader,
            leader_epoch=max(0 if known is None else known.leader_epoch + 1, floor),
            isr=isr,
            controller_epoch=self.cluster.controller_epoch,
            partition_epoch=0 if known is None else known.partition_epoch + 1,
        )
        self.record(facts.LeadershipChanged(partition=partition, leadership=leadership, is_unclean=is_unclean))
        self.changed_partitions.add(partition)

    def _floor(self, topic: str) -> int:
        """The floor of the topic's links; the links that carry it are found once for each topic."""
        floor = self._floors.get(topic)
        if floor is None:
            floor = self._floors[topic] = self.cluster.leader_epoch_floor(topic)
        return floor

    def keep_leader(self, partition: TopicPartition, isr: tuple[int, ...]) -> None:
        """Write in-sync replicas, changed or unchanged, with the same leader and leader epoch: only
        the partition epoch grows.
        """
        known = self.cluster.leaderships[partition]
        leadership = replace(
            known,
            isr=isr,
            controller_epoch=self.cluster.controller_epoch,
            partition_epoch=known.partition_epoch + 1,
            known_zxid=0,
            is_stored=True,
        )
        self.record(facts.LeadershipChanged(partition=partition, leadership=leadership))
        self.changed_partitions.add(partition)

    def answer(self, partition: TopicPartition, error: ErrorCode = ErrorCode.none, message: str = "") -> None:
        """Set the outcome of one partition of the request."""
        self.partition_reply.append(PartitionOutcome(partition=partition, error=error, message=message))

    def bring_online(self, partitions: Iterable[TopicPartition], *, may_be_unclean: bool | None = None) -> None:
        """Elect a leader for each of these partitions that has none and whose topic is not being
        deleted. The configs of topic and site decide whether a replica that was not in sync may
        lead, unless the caller decides it.
        """
        for partition in partitions:
            if self.cluster.phase_of(partition) is PartitionPhase.ONLINE or self.cluster.is_deleting(partition.topic):
                continue
            election = self._elect(partition, may_be_unclean)
            if isinstance(election, NoLeader):
                self.reasons.append(f"{partition} stays without a leader: {election.reason}")
                continue
            self.lead(partition, election.leader, election.isr, is_unclean=election.is_unclean)
            self.move_partition(partition, PartitionPhase.ONLINE)
            if election.is_unclean:
                self.reasons.append(
                    f"{partition} is led by {election.leader}, which was not in sync: records may be lost"
                )

    def _elect(self, partition: TopicPartition, may_be_unclean: bool | None) -> Election | NoLeader:
        cluster = self.cluster
        electable = cluster.electable_for(partition)
        replicas = cluster.replicas_of(partition)
        known = cluster.leaderships.get(partition)
        if known is None:
            return elections.elect_first(replicas=replicas, live=electable or cluster.brokers)
        if may_be_unclean is None:
            # a broker that is presumed dead may return with every record: unclean elections wait
            # until its registration ends
            is_certain = not any(node in cluster.presumed_dead for node in known.isr)
            may_be_unclean = is_certain and cluster.may_elect_unclean(partition.topic)
        return elections.elect_offline(replicas=replicas, isr=known.isr, live=electable, may_be_unclean=may_be_unclean)

    def mark_replica_offline(self, replica: Replica) -> None:
        """The broker of a replica is gone. The replica leaves the in-sync replicas unless it is the
        last one; a partition that it led loses its leader.
        """
        partition = replica.topic_partition
        self.move_replica(replica, ReplicaPhase.OFFLINE)
        known = self.cluster.leaderships.get(partition)
        if known is None or self.cluster.is_deleting(replica.topic):
            return
        remaining = tuple(node for node in known.isr if node != replica.node)
        # the last in-sync replica stays listed: only it may lead again without loss of records
        isr = remaining or known.isr
        if known.leader == replica.node:
            self.lead(partition, NO_NODE, isr)
        elif isr != known.isr:
            self.keep_leader(partition, isr)

    def finish(self, reason: str) -> Decision:
        """The decision, with one `Publish` effect for all changes."""
        is_published = (
            self.changed_topics
            or self.changed_partitions
            or self.raises
            or self.deleted_topics
            or self.changed_links
            or self.removed_links
            or self.changed_quotas
            or self.changed_scram_users
            or self.changed_acls
            or self.changed_tokens
            or self.changed_group_configs
            or self.has_membership_changed
        )
        effects: list[Effect] = []
        if self.image_nodes:
            effects.append(PublishImage(node_ids=tuple(sorted(self.image_nodes))))
        if is_published:
            effects.append(
                Publish(
                    topics=frozenset(self.changed_topics),
                    partitions=frozenset(self.changed_partitions),
                    raises=tuple(self.raises),
                    deleted_topics=tuple(sorted(self.deleted_topics.items())),
                    links=frozenset(self.changed_links),
                    deleted_links=tuple(sorted(self.removed_links)),
                    quotas=frozenset(self.changed_quotas),
                    scram_users=frozenset(self.changed_scram_users),
                    acls=frozenset(self.changed_acls),
                    delegation_tokens=frozenset(self.changed_tokens),
                    group_configs=frozenset(self.changed_group_configs),
                )
            )
        return Decision(
            facts=tuple(self._facts),
            effects=tuple(effects),
            reply=tuple(self.reply),
            partitions=tuple(self.partition_reply),
            quotas=tuple(self.quota_reply),
            acls=tuple(self.acl_reply),
            error=self.error,
            message=self.message,
            reason="; ".join([reason, *self._shown_reasons()]),
        )

    def _shown_reasons(self) -> list[str]:
        hidden = len(self.reasons) - REASONS_SHOWN_MAX
        return self.reasons if hidden <= 0 else [*self.reasons[:REASONS_SHOWN_MAX], f"and {hidden} more"]
