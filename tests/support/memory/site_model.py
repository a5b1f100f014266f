"""A site without processes: the contents of ZooKeeper, the live brokers, and a controller machine
that may crash between two writes.

`SiteModel` commits only the durable facts of a decision and can stop after any of them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from controller.core import commands as ask
from controller.core.decisions import Decision, PartitionOutcome
from controller.core.machine import ControllerMachine
from controller.core.state import facts
from controller.core.state.cluster import Cluster
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Broker, EpochRaise, Leadership, SiteRules, Topic
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.znodes.broker_znodes import BrokerRegistration

RULES = SiteRules(site="a", replication_factor_max=3)


class Crashed(Exception):
    """The controller died in the middle of a commit."""


def is_durable(change: facts.Fact) -> bool:
    """Whether the fact has a stored form that the controller writes."""
    match change:
        case facts.TopicCreated() | facts.TopicConfigsReplaced() | facts.TopicDeletionRequested():
            return change.must_store
        case facts.LeaderEpochsRaised() | facts.EpochRaiseEnded():
            return True
        case facts.PartitionsReassigned() | facts.BrokerUnregistered() | facts.UnregistrationEnded():
            return True
        case facts.PartitionsAdded() | facts.LeadershipChanged() | facts.TopicDeleted() | facts.DeletionMarkDropped():
            return True
        case _:
            return False


class SiteModel:
    """Stored facts, living brokers, and at most one controller."""

    def __init__(self, rules: SiteRules = RULES) -> None:
        self.rules = rules
        self.zxid = self.registrations_zxid = 0
        self.controller_epoch = 0
        self.brokers: dict[int, Broker] = {}
        self.earlier_releases: set[int] = set()
        """Brokers of a release without raises of leader epochs; counts when they register."""
        self.links: dict[str, LinkRecord] = {}
        self.topics: dict[str, Topic] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.raises: dict[str, EpochRaise] = {}
        self.epochs: dict[TopicPartition, int] = {}
        """The leader epochs in force by what is stored: brokers may have passed them to clients."""
        self.deletions: set[str] = set()
        self.unregistered: set[int] = set()
        self.broken: dict[str, str] = {}
        self.altered_unclean_election: bool | None = None
        self.machine: ControllerMachine | None = None
        self.crash_after: int | None = None
        self.commits = 0

    def alive(self, *nodes: int, racks: dict[int, str] | None = None) -> dict[int, Broker]:
        """Have exactly these brokers alive; new ones register now."""
        for node in nodes:
            if node not in self.brokers:
                self.zxid += 1
                registration = BrokerRegistration(
                    node_id=node,
                    endpoints=(),
                    grpc_address=f"b{node}:1",
                    rack=(racks or {}).get(node, ""),
                    knows_epoch_raises=node not in self.earlier_releases,
                )
                self.brokers[node] = Broker(registration=registration, epoch=self.zxid)
        self.brokers = {node: broker for node, broker in self.brokers.items() if node in nodes}
        self.zxid += 1
        self.registrations_zxid = self.zxid
        return dict(self.brokers)

    def take_over(self, *, unreachable: frozenset[int] = frozenset()) -> Decision:
        """A new controller loads what is stored and takes over; nothing listens at some of the
        brokers.
        """
        self.controller_epoch += 1
        cluster = Cluster(rules=self.rules, controller_id=1, controller_epoch=self.controller_epoch)
        cluster.brokers = dict(self.brokers)
        cluster.registrations_zxid = self.registrations_zxid
        cluster.links = {name: copied(link) for name, link in self.links.items()}
        cluster.quarantine = dict(self.broken)
        # ZooKeeper does not have the replicas that the last controller removed
        cluster.topics = {
            name: replace(topic, removed={}) for name, topic in self.topics.items() if name not in self.broken
        }
        cluster.leaderships = {
            partition: known for partition, known in self.leaderships.items() if partition.topic not in self.broken
        }
        cluster.raises = dict(self.raises)
        cluster.apply_raises(cluster.topics)
        cluster.deletions = self.deletions & cluster.topics.keys()
        cluster.unregistered = set(self.unregistered)
        cluster.altered_unclean_election = self.altered_unclean_election
        cluster.derive_phases()
        self.machine = ControllerMachine(cluster)
        return self.give(ask.TakeOver(unreachable=unreachable))

    @property
    def cluster(self) -> Cluster:
        """The controller's view."""
        assert self.machine is not None, "no controller"
        return self.machine.cluster

    def give(self, command: ask.Command) -> Decision:
        """Decide, commit, apply. Crashed when the commit is to be interrupted; then only a part of
        it is stored.
        """
        assert self.machine is not None, "no controller"
        if isinstance(command, ask.BrokersListed):
            command = replace(command, registrations_zxid=self.registrations_zxid)
        decision = self.machine.decide(command)
        for change in filter(is_durable, decision.facts):
            if self.crash_after is not None and self.commits >= self.crash_after:
                self.machine, self.crash_after = None, None
                raise Crashed
            self._store(change)
            self.commits += 1
        self.machine.apply(decision.facts)
        self.machine.cluster.check_invariants()
        for partition, known in self.machine.cluster.leaderships.items():
            assert known.leader_epoch >= self.epochs[partition], partition
        return decision

    def mend(self, name: str) -> list[Decision]:
        """The stored znodes of a topic can be decoded again, or are gone. The controller looks at
        them, then at the marks of deletions.
        """
        del self.broken[name]
        look = ask.QuarantineLookedAt(
            topics=tuple(topic for topic in (self.topics.get(name),) if topic is not None),
            leaderships=dict(self.leaderships),
            problems=dict(self.broken),
        )
        return [self.give(look), self.give(ask.DeletionsMarked(topics=tuple(sorted(self.deletions))))]

    def _store(self, change: facts.Fact) -> None:  # noqa: C901 (one branch a fact)
        self.zxid += 1
        match change:
            case facts.TopicCreated(topic=topic):
                assert topic.name not in self.topics
                self.topics[topic.name] = topic
            case facts.PartitionsAdded():
                self.topics[change.topic] = self.topics[change.topic].grown(change.assignment, change.over_version)
            case facts.PartitionsReassigned():
                self.topics[change.topic] = change.of(self.topics[change.topic])
            case facts.TopicConfigsReplaced():
                self.topics[change.topic] = replace(self.topics[change.topic], configs=change.configs)
            case facts.LeadershipChanged():
                known = self.leaderships.get(change.partition)
                assert change.leadership.partition_epoch == (0 if known is None else known.partition_epoch + 1)
                is_same_leader = known is not None and change.leadership.leader == known.leader
                in_force = self.epochs.get(change.partition, -1)
                assert known is None or change.leadership.leader_epoch >= in_force + (not is_same_leader)
                self.epochs[change.partition] = change.leadership.leader_epoch
                self.leaderships[change.partition] = replace(change.leadership, known_zxid=self.zxid)
            case facts.LeaderEpochsRaised(epoch_raise=one):
                self.raises[one.name] = one
                for partition in self.leaderships:
                    if partition.topic in one.topics:
                        self.epochs[partition] = max(self.epochs[partition], one.floor)
            case facts.EpochRaiseEnded():
                del self.raises[change.name]
            case facts.BrokerUnregistered():
                self.unregistered.add(change.node_id)
            case facts.UnregistrationEnded():
                self.unregistered.discard(change.node_id)
            case facts.TopicDeletionRequested():
                self.deletions.add(change.topic)
            case facts.TopicDeleted():
                self.deletions.remove(change.topic)
                topic = self.topics.pop(change.topic)
                for partition in topic.partitions():
                    self.leaderships.pop(partition, None)
                    self.epochs.pop(partition, None)
            case _:
                pass

    def answer_deletions(self, *, failing: frozenset[int] = frozenset()) -> list[Decision]:
        """Every living broker answers what it was asked to delete."""
        decisions = []
        for node, broker in sorted(self.brokers.items()):
            asked = {
                replica.topic
                for replica, phase in self.cluster.replica_phases.items()
                if replica.node == node and phase is ReplicaPhase.DELETION_STARTED
            }
            if asked:
                topics = [self.cluster.topics[name] for name in sorted(asked)]
                decisions.append(
                    self.give(
                        ask.DeletionsAnswered(
                            node_id=node,
                            broker_epoch=broker.epoch,
                            topic_ids=tuple(topic.topic_id for topic in topics),
                            failed=tuple(
                                partition for topic in topics for partition in topic.partitions() if node in failing
                            ),
                        )
                    )
                )
        return decisions

    def propose(self, partition: TopicPartition, members: tuple[int, ...], /, **changed: Any) -> PartitionOutcome:
        """Propose as `proposed` does. Returns the outcome alone."""
        return self.proposed(partition, members, **changed).partitions[0]

    def proposed(self, partition: TopicPartition, members: tuple[int, ...], /, **changed: Any) -> Decision:
        """The leader of a partition proposes in-sync replicas under the state that stands;
        `changed` fields lie.
        """
        known = self.cluster.leaderships[partition]
        node = changed.pop("node_id", known.leader)
        broker_epoch = changed.pop("broker_epoch", self.brokers[node].epoch if node in self.brokers else -1)
        fields: dict[str, Any] = {
            "topic_id": self.cluster.topics[partition.topic].topic_id,
            "leader_epoch": known.leader_epoch,
            "partition_epoch": known.partition_epoch,
            "isr": tuple((member, self.brokers[member].epoch if member in self.brokers else -1) for member in members),
        }
        proposal = ask.IsrProposal(partition=partition, **{**fields, **changed})
        command = ask.AlterPartitions(node_id=node, broker_epoch=broker_epoch, proposals=(proposal,))
        return self.give(command)

    def catch_up(self) -> None:
        """Every living replica is proposed for the in-sync replicas by its leader, until nothing
        changes.
        """
        for partition in sorted(self.cluster.partition_phases):
            known = self.cluster.leaderships.get(partition)
            if known is None or known.leader not in self.cluster.brokers:
                continue
            living = tuple(
                node
                for node in self.cluster.replicas_of(partition)
                if node in self.cluster.electable() or node in known.isr
            )
            if set(living) != set(known.isr):
                self.propose(partition, living)

    def summary(self) -> dict[str, Any]:
        """The state that must be equal for any number of controllers that died on the way."""
        cluster = self.cluster
        return {
            "topics": {name: (dict(topic.assignment), dict(topic.configs)) for name, topic in cluster.topics.items()},
            "partitions": {
                str(partition): (phase.value, cluster.leaderships[partition].leader, cluster.leaderships[partition].isr)
                for partition, phase in cluster.partition_phases.items()
            },
            "deletions": sorted(cluster.deletions),
        }


def copied(link: LinkRecord) -> LinkRecord:
    copied = LinkRecord()
    copied.CopyFrom(link)
    return copied


def topic_request(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> ask.TopicRequest:
    """A request with an id made from the name."""
    topic_id = name.encode().ljust(16, b".")[:16]
    return ask.TopicRequest(name=name, topic_id=topic_id, partition_count=partitions, replication_factor=factor, **more)


def link_record(name: str = "b-a", *, active: str = "b", epoch: int = 1, floor: int = 0, **more: Any) -> LinkRecord:
    """A link between sites a and b that carries `orders.*`."""
    more.setdefault("phase", LinkPhase.MIRRORING)
    more.setdefault("topic_whitelist", ["orders.*"])
    return LinkRecord(
        name=name, source_site="b", target_site="a", active_site=active, epoch=epoch, leader_epoch_floor=floor, **more
    )
