"""A broker's knowledge of its site and the peer sites as one immutable value, and the resulting
view of each topic.

Made from the controller's `ControlBatch` (a full image or a change of it), from confirmed link
epochs and from the peers' `SiteView`s. Every change yields a new image with a higher `version`;
unchanged parts are shared with the older one, so that an identity check shows whether a part
changed. Handlers read an image, `broker/replication/replicas.py` compares two of them.

Routing: a topic that a routed link carries is answered with the active site's leaders; while this
site is passive, these come from the peer's view and its brokers' later reports. Without a view of
the peer, the topic has no leader rather than a wrong one. A copy here of a topic that the active
site does not have is not visible to clients: both sites give them the same answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from broker.metadata.core.peer_topics import PeerTopics
from broker.metadata.core.topic_images import PartitionImage, TopicImage, at_floor
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, SiteView
from wire.protocol.ids import NO_NODE
from wire.rules.acls import ResourceAcls
from wire.rules.client_quotas import QuotaEntity, QuotaValues
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.links import LinkEpoch, SiteRole, governing_link, links_of_group, links_of_topic, other_site, role_of
from wire.znodes.group_configs import GroupConfigs


class LinkRole(enum.Enum):
    """The role of this broker for a topic; no link carries LOCAL topics."""

    LOCAL = "local"
    ACTIVE = "active"
    UNCONFIRMED = "unconfirmed"
    FENCED = "fenced"
    PASSIVE = "passive"

    @property
    def may_write(self) -> bool:
        """True when clients may produce."""
        return self in (LinkRole.LOCAL, LinkRole.ACTIVE)

    @property
    def is_suspended(self) -> bool:
        """True while no site may write: the active role is moving, or is not confirmed."""
        return self in (LinkRole.UNCONFIRMED, LinkRole.FENCED)


class RoutedTopic(Struct, frozen=True, kw_only=True):
    """A topic as clients must see it: the site whose leaders it has, and the brokers that can be
    named.
    """

    topic: TopicImage
    is_own_site: bool


class ClusterImage(Struct, frozen=True, kw_only=True):
    """A broker's whole knowledge of its site and the peer sites; the module describes the
    sources.
    """

    site: str
    node_id: int
    version: int = 0
    full_version: int = -1
    """The version of the last full image: its sender may not have this broker's earlier reports."""
    is_complete: bool = False
    cluster_id: str = ""
    controller_id: int = NO_NODE
    controller_epoch: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    departed: Mapping[int, BrokerInfo] = field(default_factory=dict)
    """Brokers of this site that have just disappeared. Metadata goes on listing them for a moment:
    a client that must drop a broker and move its partitions at the same time may lose the new
    leaders (librdkafka does, until its next refresh).
    """
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    deleted_ids: frozenset[bytes] = frozenset()
    """The topics that the last batch named as deleted. A controller names each until all its
    replicas are gone.
    """
    broker_epoch: int = 0
    """The registration of this broker that the last batch addressed."""
    removed_replicas: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    """The partitions, by topic id, from which a reassignment has removed this broker, as the last
    batch names them. The value is 0 if the broker was registered at that time, else the zxid of the
    newest change of registrations before the removal.
    """
    quarantined: frozenset[str] = frozenset()
    """Topics that the controller cannot read: this broker's state of them, in `topics` and in its
    logs, stays unchanged.
    """
    links: Mapping[str, LinkRecord] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, QuotaValues] = field(default_factory=dict)
    scram_users: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """SCRAM credentials by user and mechanism, in the form of ZooKeeper."""
    acls: ResourceAcls = field(default_factory=dict)
    """ACLs of this site; not known before the image is complete."""
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    group_configs: Mapping[str, GroupConfigs] = field(default_factory=dict)
    """The configs that are set for single groups of this site."""
    confirmed_epochs: Mapping[str, LinkEpoch] = field(default_factory=dict)
    peers: Mapping[str, SiteView] = field(default_factory=dict)
    peer_topics: Mapping[str, PeerTopics] = field(default_factory=dict)
    carriers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Cache of `links_of`: topic name to link names, shared by images with the same links."""
    raised: dict[str, tuple[TopicImage, int, TopicImage]] = field(default_factory=dict)
    """Cache of `_at_floor`: topic name to a peer's topic, the floor, and the topic at the floor."""

    def must_delete_replica(self, topic_id: bytes, index: int, *, handled_registration: int | None) -> bool:
        """True if the controller has removed this broker from the partition, and a log in a
        directory that has handled the registration holds nothing newer than the removal. If the
        directory has handled a later registration, the removal was applied before, and the
        partition may have been assigned here again: ZooKeeper has data of a backup (decision 183).
        """
        removal = self.removed_replicas.get((topic_id, index))
        if removal is None:
            return False
        return removal == 0 or (handled_registration is not None and handled_registration <= removal)

    def links_of(self, topic: str) -> tuple[str, ...]:
        """The names of the links that carry the topic; several where this site has several
        standbys.
        """
        if not self.links:
            return ()
        if topic not in self.carriers:
            if len(self.carriers) > CARRIERS_REMEMBERED_MAX:
                self.carriers.clear()
            self.carriers[topic] = tuple(link.name for link in links_of_topic(self.links.values(), topic))
        return self.carriers[topic]

    def link_of(self, topic: str) -> LinkRecord | None:
        """The link that decides about the topic here, None for a local one."""
        names = self.links_of(topic)
        if len(names) < 2:
            return self.links[names[0]] if names else None
        return self._governing([self.links[name] for name in names])

    def link_of_group(self, group: str) -> LinkRecord | None:
        """The link that decides about the group's offsets here, None for a local one."""
        return self._governing(links_of_group(self.links.values(), group)) if self.links else None

    def _governing(self, links: Sequence[LinkRecord]) -> LinkRecord | None:
        """The link that governs the topic, by `wire/rules/links.py`. Of several links under which
        the site is active, an unconfirmed one comes first.
        """
        unconfirmed = [link for link in links if self.role_in(link) is LinkRole.UNCONFIRMED]
        link = governing_link(links, self.site)
        is_active = link is not None and self.role_in(link) is LinkRole.ACTIVE
        return unconfirmed[0] if is_active and unconfirmed else link

    def role_in(self, link: LinkRecord | None) -> LinkRole:
        """This broker's role for the topics of the link."""
        if link is None:
            return LinkRole.LOCAL
        role = role_of(link, self.site)
        if role is SiteRole.PASSIVE:
            return LinkRole.PASSIVE
        if role is SiteRole.FENCED:
            return LinkRole.FENCED
        confirmed = self.confirmed_epochs.get(link.name)
        is_confirmed = confirmed is not None and confirmed.epoch == link.epoch
        return LinkRole.ACTIVE if is_confirmed else LinkRole.UNCONFIRMED

    def role_of_topic(self, topic: str) -> LinkRole:
        """This broker's role for the topic."""
        return self.role_in(self.link_of(topic))

    def peer_of(self, link: LinkRecord) -> SiteView | None:
        """The other site's view, None before the first one."""
        return self.peers.get(other_site(link, self.site))

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """This site's own partition; None if the site has none."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def routed_topic(self, topic: str) -> RoutedTopic | None:
        """The topic as a client must see it; None if no site from which it could be served has
        it.
        """
        own = self.topics.get(topic)
        link = self.link_of(topic)
        if link is None and own is None:
            home = self.only_site_with(topic)
            found = None if home is None else self.topics_of_peer(home).get(topic)
            return None if found is None else RoutedTopic(topic=found, is_own_site=False)
        if link is None or not link.is_routed or self.role_in(link) is not LinkRole.PASSIVE:
            return None if own is None else RoutedTopic(topic=own, is_own_site=True)
        theirs = self.topics_of_peer(other_site(link, self.site)).get(topic)
        if theirs is not None:
            return RoutedTopic(topic=self._at_floor(theirs, link.leader_epoch_floor), is_own_site=False)
        if own is None or self.peer_of(link) is not None:
            return None
        return RoutedTopic(topic=_without_leaders(own), is_own_site=False)

    def _at_floor(self, topic: TopicImage, floor: int) -> TopicImage:
        """The active site's topic with no leader epoch below the link's floor: its leaders take
        writes only from there on. The peer's view may be older than the link's record, and clients
        ignore a leader whose epoch is older than the one that they know.
        """
        known = self.raised.get(topic.name)
        if known is None or known[0] is not topic or known[1] != floor:
            if len(self.raised) > CARRIERS_REMEMBERED_MAX:
                self.raised.clear()
            known = self.raised[topic.name] = topic, floor, at_floor(topic, floor)
        return known[2]

    def routed_topic_with_id(self, topic_id: bytes) -> RoutedTopic | None:
        """The topic with the id as a client must see it, None when neither this site nor the active
        site of its link has it.

        If the topic of a copy was deleted and created again at the active site, the copy's name
        belongs to another topic there: the copy's id leads nowhere.
        """
        names = (self.topic_names.get(topic_id), *(topics.name_of(topic_id) for topics in self.peer_topics.values()))
        for name in names:
            found = None if name is None else self.routed_topic(name)
            if found is not None and found.topic.topic_id == topic_id:
                return found
        return None

    def topics_of_peer(self, site: str) -> PeerTopics:
        """The topics of a peer, none before its first view."""
        return self.peer_topics.get(site, NO_PEER_TOPICS)

    def only_site_with(self, topic: str) -> str | None:
        """The peer that has a topic which no link carries and this site does not have; clients of
        both sites are directed to it.
        """
        if topic in self.topics or self.link_of(topic) is not None:
            return None
        return next((site for site in self.routed_sites() if self.topics_of_peer(site).get(topic)), None)

    def routed_sites(self) -> list[str]:
        """Peers whose brokers clients of this site see too, by name."""
        return sorted({other_site(link, self.site) for link in self.links.values() if link.is_routed})

    def sites_that_may_have(self, topic: str) -> list[str]:
        """Peers to ask about a topic that this site does not know: the active one of its link, all
        when no link carries it.
        """
        link = self.link_of(topic)
        if link is None:
            return self.routed_sites()
        if link.is_routed and self.role_in(link) is LinkRole.PASSIVE:
            return [other_site(link, self.site)]
        return []

    def routed_topic_names(self) -> Iterator[str]:
        """Names of all topics that a client must see: this site's topics, then those that only an
        active peer has yet.
        """
        yield from (name for name in self.topics if not self.links or self.routed_topic(name) is not None)
        for topics in self.peer_topics.values():
            for name in topics:
                if name not in self.topics and self.routed_topic(name) is not None:
                    yield name

    def routed_brokers(self) -> dict[int, BrokerInfo]:
        """Own brokers and those of every peer of a routed link, by node id."""
        found = dict(self.brokers)
        for link in self.links.values():
            view = self.peer_of(link) if link.is_routed else None
            for broker in view.brokers if view is not None else ():
                found.setdefault(broker.node_id, broker)
        return found

    def coordinator_of(self, group: str, *, partition_count: int) -> int:
        """Node id of the broker that coordinates the group, -1 when there is none (yet)."""
        link = self.link_of_group(group)
        if link is None or not link.is_routed or self.role_in(link) is not LinkRole.PASSIVE:
            topic = self.topics.get(OFFSETS_TOPIC)
            count = partition_count if topic is None else len(topic.partitions)
            partition = self.partition(OFFSETS_TOPIC, group_partition(group, count))
            return NO_NODE if partition is None else partition.leader
        view = self.peer_of(link)
        if view is None or not view.group_coordinators:
            return NO_NODE
        return view.group_coordinators[group_partition(group, len(view.group_coordinators))]


NO_PEER_TOPICS: Final = PeerTopics()


CARRIERS_REMEMBERED_MAX = 100_000


HASHES_REMEMBERED_MAX = 10_000


_SIGN: Final = 1 << 31


def group_partition(group: str, partition_count: int) -> int:
    """Partition of an internal topic that stores the name: the absolute value of Java's string
    hash, with -2^31 as 0, as in Apache Kafka.
    """
    return _absolute_hash(group) % partition_count


@lru_cache(maxsize=HASHES_REMEMBERED_MAX)
def _absolute_hash(name: str) -> int:
    code = 0
    for unit in _utf16_units(name):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code >= _SIGN:
        code = (_SIGN << 1) - code if code > _SIGN else 0
    return code


def _utf16_units(text: str) -> Iterator[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        yield encoded[position] << 8 | encoded[position + 1]


def _without_leaders(topic: TopicImage) -> TopicImage:
    return replace(
        topic,
        partitions={index: replace(partition, leader=NO_NODE) for index, partition in topic.partitions.items()},
    )
