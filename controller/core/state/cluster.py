"""The controller's view of its site: one mutable value, changed by `apply` alone.

Everything durable in it mirrors ZooKeeper; the phases of partitions and replicas live in memory and
are derived when a controller takes over. Entries are immutable and replaced whole, so `copy` is
cheap: a decision is made on a copy before it is written.

Invariants (`check_invariants`):
  A  every partition of a topic has a phase, and nothing else has
  B  every assigned replica has a phase, and nothing else has
  C  an online partition has a living leader that is in sync and assigned
  D  in-sync replicas are assigned replicas
  E  a topic whose deletion was asked for exists
  F  a replica whose deletion has begun belongs to a topic that is to be deleted
  G  no broker is alive and presumed dead at once
  H  a broker that is about to stop is alive
  I  replicas that a reassignment adds or removes are assigned while it lasts
  J  the leader of an online partition has its log directory
  K  a broker that was given up is not registered
  L  a topic in quarantine is not among the topics
  M  a partition whose leader epoch is not in its znode belongs to a raise in force
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from controller.core.state import facts as fact
from controller.core.state import partition_states, replica_states
from controller.core.state.broker_facts import apply_broker_fact
from controller.core.state.derived_phases import derived_partition_phase, derived_replica_phase
from controller.core.state.entity_facts import apply_entity_configs
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Broker, EpochRaise, Leadership, Replica, SiteRules, Topic
from runtime.invariants import InvariantBroken
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.acls import AccessEntry, ResourcePattern
from wire.rules.client_quotas import QuotaEntity, QuotaValues
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.links import SiteRole, governing_link, links_of_topic, role_of
from wire.znodes.group_configs import GroupConfigs

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
"""A config of topics and brokers: an out-of-sync replica may lead if no other replica is left."""


class Cluster(Struct, kw_only=True):
    """The state of one site: brokers, topics, leaderships and the phases of partitions and
    replicas.
    """

    rules: SiteRules
    controller_id: int
    controller_epoch: int
    cluster_id: str = ""
    brokers: dict[int, Broker] = field(default_factory=dict)
    presumed_dead: dict[int, Broker] = field(default_factory=dict)
    """Brokers that are registered and refuse connections; they are not among `brokers`."""
    registrations_zxid: int = 0
    """The newest change of registrations that `brokers` and `presumed_dead` include."""
    leaving: set[int] = field(default_factory=set)
    """Brokers in a controlled shutdown: alive, and not eligible as leaders."""
    offline_replicas: dict[int, frozenset[TopicPartition]] = field(default_factory=dict)
    """By living broker: partitions whose log directory it has lost."""
    unregistered: set[int] = field(default_factory=set)
    """Brokers that an operator has unregistered; none of them has a registration."""
    topics: dict[str, Topic] = field(default_factory=dict)
    leaderships: dict[TopicPartition, Leadership] = field(default_factory=dict)
    raises: dict[str, EpochRaise] = field(default_factory=dict)
    """Raises of leader epochs that not all states of their partitions have yet."""
    deletions: set[str] = field(default_factory=set)
    links: dict[str, LinkRecord] = field(default_factory=dict)
    quarantine: dict[str, str] = field(default_factory=dict)
    """Topics whose znodes cannot be decoded, with the reason. They are not among `topics`, and
    brokers keep their logs and leaderships.
    """
    link_problems: dict[str, str] = field(default_factory=dict)
    """Links whose znodes cannot be decoded, with the reason. `links` has the last valid record, or
    a stand-in.
    """
    quotas: dict[QuotaEntity, QuotaValues] = field(default_factory=dict)
    scram_users: dict[str, Mapping[str, str]] = field(default_factory=dict)
    acls: dict[ResourcePattern, frozenset[AccessEntry]] = field(default_factory=dict)
    delegation_tokens: dict[str, DelegationToken] = field(default_factory=dict)
    group_configs: dict[str, GroupConfigs] = field(default_factory=dict)
    altered_unclean_election: bool | None = None
    """`unclean.leader.election.enable` of the brokers if it was altered at runtime; None if the
    properties file applies.
    """
    partition_phases: dict[TopicPartition, PartitionPhase] = field(default_factory=dict)
    replica_phases: dict[Replica, ReplicaPhase] = field(default_factory=dict)
    revision: int = 0
    """Grows with every fact; a value derived from the cluster is valid as long as this number is
    unchanged.
    """

    def copy(self) -> Cluster:
        """A copy that can be changed without touching this one."""
        return replace(
            self,
            brokers=dict(self.brokers),
            presumed_dead=dict(self.presumed_dead),
            leaving=set(self.leaving),
            offline_replicas=dict(self.offline_replicas),
            unregistered=set(self.unregistered),
            topics=dict(self.topics),
            leaderships=dict(self.leaderships),
            raises=dict(self.raises),
            deletions=set(self.deletions),
            links=dict(self.links),
            quarantine=dict(self.quarantine),
            link_problems=dict(self.link_problems),
            quotas=dict(self.quotas),
            scram_users=dict(self.scram_users),
            acls=dict(self.acls),
            delegation_tokens=dict(self.delegation_tokens),
            group_configs=dict(self.group_configs),
            partition_phases=dict(self.partition_phases),
            replica_phases=dict(self.replica_phases),
        )

    def may_elect_unclean(self, topic: str) -> bool:
        """True if an out-of-sync replica may lead: the topic's config decides, then the altered
        config of brokers, then the properties file.
        """
        override = self.topics[topic].configs.get(UNCLEAN_ELECTION)
        if override is not None:
            return override.lower() == "true"
        altered = self.altered_unclean_election
        return self.rules.may_elect_unclean if altered is None else altered

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Assigned node ids, preferred leader first."""
        return self.topics[partition.topic].assignment[partition.partition]

    def phase_of(self, partition: TopicPartition) -> PartitionPhase:
        """Phase of a partition; unknown ones do not exist."""
        return self.partition_phases.get(partition, PartitionPhase.NON_EXISTENT)

    def replica_phase_of(self, replica: Replica) -> ReplicaPhase:
        """Phase of a replica; unknown ones do not exist."""
        return self.replica_phases.get(replica, ReplicaPhase.NON_EXISTENT)

    def electable(self) -> set[int]:
        """Brokers that may become leaders."""
        return self.brokers.keys() - self.leaving

    def electable_for(self, partition: TopicPartition) -> set[int]:
        """Brokers that may become leader of the partition: those that have not lost its log
        directory.
        """
        if not self.offline_replicas:
            return self.electable()
        return {node for node in self.electable() if not self.is_replica_offline(partition, node)}

    def is_replica_offline(self, partition: TopicPartition, node: int) -> bool:
        """True if the broker has lost the partition's log directory."""
        return partition in self.offline_replicas.get(node, ())

    def target_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Replicas as they will be when the partition's reassignment, if there is one, is
        complete.
        """
        topic = self.topics[partition.topic]
        going = topic.removing.get(partition.partition, ())
        return tuple(node for node in topic.assignment[partition.partition] if node not in going)

    def is_deleting(self, topic: str) -> bool:
        """True when the topic's deletion was asked for and is not complete."""
        return topic in self.deletions

    def awaited_for_deletion(self, topic: str) -> set[int]:
        """Brokers that have not yet deleted their replicas of the topic."""
        return {
            replica.node
            for replica in self.topics[topic].replicas()
            if self.replica_phase_of(replica) is not ReplicaPhase.DELETION_SUCCESSFUL
        }

    def load(self) -> dict[int, int]:
        """Replicas held by each living broker."""
        held = dict.fromkeys(self.brokers, 0)
        for topic in self.topics.values():
            for replicas in topic.assignment.values():
                for node in replicas:
                    if node in held:
                        held[node] += 1
        return held

    def racks(self) -> dict[int, str]:
        """Rack of each living broker."""
        return {node: broker.registration.rack for node, broker in self.brokers.items()}

    def link_of(self, topic: str) -> LinkRecord | None:
        """The link that decides about the topic at this site."""
        return governing_link(links_of_topic(self.links.values(), topic), self.rules.site)

    def leader_epoch_floor(self, topic: str) -> int:
        """Lowest leader epoch that the topic's partitions may have: above 0 only where a link makes
        this site active.
        """
        links = links_of_topic(self.links.values(), topic)
        # if the site is passive for one link of the topic, it elects leaders below its own band of
        # epochs
        if any(role_of(link, self.rules.site) is SiteRole.PASSIVE for link in links):
            return 0
        return max((link.leader_epoch_floor for link in links), default=0)

    def offline_partitions(self) -> list[TopicPartition]:
        """Partitions of the given topics that have no leader."""
        return [
            partition
            for partition, phase in self.partition_phases.items()
            if phase is not PartitionPhase.ONLINE and partition.topic not in self.deletions
        ]

    def apply(self, change: fact.Fact) -> None:  # noqa: C901 (one branch a fact)
        """Apply one fact: the only way to change the cluster, for live decisions and for replay."""
        self.revision += 1
        match change:
            # a topic of a thousand partitions has thousands of these
            case fact.LeadershipChanged():
                self._apply_leadership(change)
            case fact.PartitionMoved():
                self._move_partition(change.partition, change.phase)
            case fact.ReplicaMoved():
                self._move_replica(change.replica, change.phase)
            case (
                fact.BrokerJoined()
                | fact.BrokerLeft()
                | fact.PresumptionDropped()
                | fact.RegistrationsListed()
                | fact.BrokerLeaving()
                | fact.OfflineReplicasKnown()
                | fact.BrokerUnregistered()
                | fact.UnregistrationEnded()
            ):
                apply_broker_fact(self, change)
            case fact.TopicCreated():
                self.topics[change.topic.name] = change.topic
            case fact.PartitionsAdded():
                self.topics[change.topic] = self.topics[change.topic].grown(change.assignment, change.over_version)
            case fact.PartitionsReassigned():
                self.topics[change.topic] = change.of(self.topics[change.topic])
            case fact.TopicConfigsReplaced():
                self.topics[change.topic] = replace(self.topics[change.topic], configs=change.configs)
            case fact.TopicDeletionRequested():
                self.deletions.add(change.topic)
            case fact.TopicDeleted():
                self._forget_topic(change.topic)
            case fact.LinkStored():
                self.links[change.link.name] = change.link
            case fact.LinkRemoved():
                self.links.pop(change.name)
            case fact.LeaderEpochsRaised() | fact.EpochRaiseEnded():
                self._apply_raise(change)
            case fact.UncleanElectionAltered():
                self.altered_unclean_election = change.is_allowed
            case (
                fact.ClientQuotaReplaced()
                | fact.ScramUserReplaced()
                | fact.AclsReplaced()
                | fact.DelegationTokenReplaced()
                | fact.GroupConfigsReplaced()
            ):
                apply_entity_configs(self, change)
            case fact.TopicReleased():
                self._release(change)
            case fact.QuarantineRead():
                self.quarantine = dict(change.problems)
            case fact.LinkProblemsRead():
                self.link_problems = dict(change.problems)

    def _apply_raise(self, change: fact.LeaderEpochsRaised | fact.EpochRaiseEnded) -> None:
        if isinstance(change, fact.EpochRaiseEnded):
            self.raises.pop(change.name)
            return
        self.raises[change.epoch_raise.name] = change.epoch_raise
        self.apply_raises(change.epoch_raise.topics)

    def apply_raises(self, names: Collection[str]) -> None:
        """Raise the leader epochs of these topics as the raises in force say."""
        for epoch_raise in self.raises.values():
            for name in epoch_raise.topics.intersection(names) & self.topics.keys():
                for partition in self.topics[name].partitions():
                    known = self.leaderships.get(partition)
                    if known is not None and known.leader_epoch < epoch_raise.floor:
                        self.leaderships[partition] = replace(known, leader_epoch=epoch_raise.floor, is_stored=False)

    def derive_phases(self) -> None:
        """Derive the phase of every loaded partition and replica, after an election."""
        for topic in self.topics.values():
            self._derive_topic(topic)

    def _release(self, change: fact.TopicReleased) -> None:
        self.topics[change.topic.name] = change.topic
        self.leaderships.update(change.leaderships)
        self.apply_raises({change.topic.name})
        self._derive_topic(change.topic)

    def _derive_topic(self, topic: Topic) -> None:
        for partition in topic.partitions():
            self.partition_phases[partition] = derived_partition_phase(self.leaderships.get(partition), self.brokers)
        for replica in topic.replicas():
            self.replica_phases[replica] = derived_replica_phase(
                is_alive=replica.node in self.brokers, is_deleting=self.is_deleting(topic.name)
            )

    def _apply_leadership(self, change: fact.LeadershipChanged) -> None:
        known = self.leaderships.get(change.partition)
        expected = -1 if known is None else known.partition_epoch
        if change.leadership.partition_epoch != expected + 1:
            raise InvariantBroken(f"{change.partition}: {change.leadership} does not follow {known}")
        epoch_min = -1 if known is None else known.leader_epoch + (change.leadership.leader != known.leader)
        if change.leadership.leader_epoch < epoch_min:
            raise InvariantBroken(f"{change.partition}: leader epoch goes from {known} to {change.leadership}")
        self.leaderships[change.partition] = change.leadership

    def _move_partition(self, partition: TopicPartition, target: PartitionPhase) -> None:
        source = self.phase_of(partition)
        if not partition_states.may_move(source, target):
            raise InvariantBroken(f"partition {partition} may not move from {source.value} to {target.value}")
        if target is PartitionPhase.NON_EXISTENT:
            del self.partition_phases[partition]
        else:
            self.partition_phases[partition] = target

    def _move_replica(self, replica: Replica, target: ReplicaPhase) -> None:
        source = self.replica_phase_of(replica)
        if not replica_states.may_move(source, target):
            raise InvariantBroken(f"{replica} may not move from {source.value} to {target.value}")
        if target is ReplicaPhase.NON_EXISTENT:
            del self.replica_phases[replica]
        else:
            self.replica_phases[replica] = target

    def _forget_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.deletions.discard(name)
        for partition in topic.partitions():
            self.leaderships.pop(partition, None)

    def check_invariants(self) -> None:
        """Raise InvariantBroken for the first lettered invariant that does not hold. For tests and
        simulation.
        """
        partitions = {partition for topic in self.topics.values() for partition in topic.partitions()}
        replicas = {replica for topic in self.topics.values() for replica in topic.replicas()}
        _hold("A", partitions == set(self.partition_phases), partitions ^ set(self.partition_phases))
        _hold("B", replicas == set(self.replica_phases), replicas ^ set(self.replica_phases))
        for partition, phase in self.partition_phases.items():
            leadership = self.leaderships.get(partition)
            if phase is PartitionPhase.ONLINE:
                is_led = (
                    leadership is not None and leadership.leader in self.brokers and leadership.leader in leadership.isr
                )
                _hold("C", is_led, (partition, leadership))
                is_broken = leadership is not None and self.is_replica_offline(partition, leadership.leader)
                _hold("J", not is_broken, (partition, leadership))
            if leadership is not None:
                _hold("D", set(leadership.isr) <= set(self.replicas_of(partition)), (partition, leadership))
        _hold("G", not self.presumed_dead.keys() & self.brokers.keys(), self.presumed_dead.keys() & self.brokers.keys())
        registered = self.brokers.keys() | self.presumed_dead.keys()
        _hold("K", self.unregistered.isdisjoint(registered), self.unregistered & registered)
        _hold("H", self.leaving <= self.brokers.keys(), self.leaving - self.brokers.keys())
        for topic in self.topics.values():
            for index in {*topic.adding, *topic.removing}:
                named = {*topic.adding.get(index, ()), *topic.removing.get(index, ())}
                _hold("I", named <= set(topic.assignment[index]), (topic.name, index))
        _hold("L", self.quarantine.keys().isdisjoint(self.topics), self.quarantine.keys() & self.topics.keys())
        raised = {name for epoch_raise in self.raises.values() for name in epoch_raise.topics}
        for partition, leadership in self.leaderships.items():
            _hold("M", leadership.is_stored or partition.topic in raised, (partition, leadership))
        _hold("E", self.deletions <= set(self.topics), self.deletions - set(self.topics))
        begun = (ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL)
        for replica, replica_phase in self.replica_phases.items():
            _hold("F", replica_phase not in begun or replica.topic in self.deletions, replica)


def _hold(letter: str, is_true: bool, evidence: object) -> None:
    if not is_true:
        raise InvariantBroken(f"invariant {letter} of the cluster does not hold: {evidence}")
