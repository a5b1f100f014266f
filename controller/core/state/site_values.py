"""The values in the controller's view of its site: brokers, topics, leaderships, rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from wire.protocol.ids import TopicPartition
from wire.znodes.broker_znodes import BrokerRegistration
from wire.znodes.topic_znodes import TopicAssignment


class Replica(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    node: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that it belongs to."""
        return TopicPartition(self.topic, self.partition)


class Broker(Struct, frozen=True, kw_only=True):
    """A registered broker; the epoch is the creation zxid of its registration."""

    registration: BrokerRegistration
    epoch: int

    @property
    def node_id(self) -> int:
        """Its node id."""
        return self.registration.node_id


class Leadership(Struct, frozen=True, kw_only=True):
    """The leader and the in-sync replicas of a partition. `partition_epoch` is the znode's version.

    If another controller wrote the state, `known_zxid` is the newest registration that it knew; a
    broker with a later registration has restarted since. 0: this controller wrote the state.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int
    known_zxid: int = 0
    is_stored: bool = True
    """False while the znode has a lower leader epoch than an `EpochRaise` gave the partition."""


class EpochRaise(Struct, frozen=True, kw_only=True):
    """A raise of leader epochs that is in force and stored as one znode: each partition of these
    topics has at least the leader epoch `floor`, under the same leader. The states of partitions
    follow later.
    """

    name: str
    floor: int
    topics: frozenset[str]


class NewReplicas(Struct, frozen=True, kw_only=True):
    """Replicas of a partition, and those that a reassignment adds or removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class Topic(Struct, frozen=True, kw_only=True):
    """One topic: identity, replicas by partition, overrides. `version` is that of its assignment
    znode.

    During a reassignment, `assignment` has the wanted replicas, followed by those to be removed
    (KIP-455). `removed` has, by partition, the brokers from which this controller has removed it;
    it is not stored. `removed_while_away` is: brokers that were not registered at that time, each
    with the zxid of the newest change of registrations before it (decision 183).
    """

    name: str
    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    removed: Mapping[int, frozenset[int]] = field(default_factory=dict)
    removed_while_away: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def partitions(self) -> Iterator[TopicPartition]:
        """Its partitions in order."""
        return (TopicPartition(self.name, index) for index in sorted(self.assignment))

    def replicas(self) -> Iterator[Replica]:
        """All replicas of all partitions."""
        return (Replica(self.name, index, node) for index in sorted(self.assignment) for node in self.assignment[index])

    def stored(self) -> TopicAssignment:
        """The content of its znode."""
        return TopicAssignment(
            topic_id=self.topic_id,
            partitions=self.assignment,
            adding_replicas=self.adding,
            removing_replicas=self.removing,
            removed_while_away=self.removed_while_away,
        )

    @property
    def replication_factor(self) -> int:
        """Replicas of its first partition, without those that are being added; 0 when it has
        none.
        """
        if not self.assignment:
            return 0
        first = min(self.assignment)
        return len(self.assignment[first]) - len(self.adding.get(first, ()))

    def is_reassigning(self, index: int) -> bool:
        """True during a reassignment of the partition."""
        return bool(self.adding.get(index) or self.removing.get(index))

    def grown(self, added: Mapping[int, tuple[int, ...]], over_version: int | None = None) -> Topic:
        """The topic with more partitions. `over_version` is the version of the replaced znode, if
        another process wrote it.
        """
        version = self.version if over_version is None else over_version
        return replace(self, assignment={**self.assignment, **added}, version=version + 1)

    def reassigned(self, partitions: Mapping[int, NewReplicas], *, here: Collection[int], zxid: int) -> Topic:
        """The topic with other replicas for some partitions. `here` are the brokers that are
        registered or were unregistered: no removal is stored for these. `zxid` is that of the
        newest change of registrations.
        """
        adding = {index: nodes for index, nodes in self.adding.items() if index not in partitions}
        removing = {index: nodes for index, nodes in self.removing.items() if index not in partitions}
        adding |= {index: new.adding for index, new in partitions.items() if new.adding}
        removing |= {index: new.removing for index, new in partitions.items() if new.removing}
        assignment = {**self.assignment, **{index: new.replicas for index, new in partitions.items()}}
        removed = dict(self.removed)
        for index, new in partitions.items():
            known = removed.pop(index, frozenset())
            if left := (known | frozenset(self.assignment[index])) - frozenset(new.replicas):
                removed[index] = left
        away = {
            index: {node: at for node, at in known.items() if node not in here}
            for index, known in self.removed_while_away.items()
        }
        for index, new in partitions.items():
            left_away = frozenset(self.assignment[index]) - frozenset(new.replicas) - frozenset(here)
            kept = {node: at for node, at in away.get(index, {}).items() if node not in new.replicas}
            away[index] = kept | dict.fromkeys(left_away, zxid)
        return replace(
            self,
            assignment=assignment,
            adding=adding,
            removing=removing,
            removed=removed,
            removed_while_away={index: nodes for index, nodes in away.items() if nodes},
            version=self.version + 1,
        )


class SiteRules(Struct, frozen=True, kw_only=True):
    """The site's settings that decisions need."""

    site: str
    default_partition_count: int = 1
    default_replication_factor: int = 1
    replication_factor_max: int = 32_767
    partitions_per_request_max: int = 20_000
    may_elect_unclean: bool = False
    may_delete_topics: bool = True
