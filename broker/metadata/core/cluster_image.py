"""A broker's knowledge of its site and the peer sites as one immutable value, and what follows for
each topic.

Made from the controller's `ControlBatch` (a full image or a change of it), from confirmed link
epochs and from the peers' `SiteView`s. Every change yields a new image with a higher `version`;
whatever did not change is shared with the older one, so that "is it the same object" answers "did
it change". Handlers read an image, `broker/replication/replicas.py` compares two of them.

Routing: a topic that a routed link carries is answered with the active site's leaders; while this
site is passive that is the peer's view with what its brokers reported since, and without any view
of the peer the topic has no leader rather than a wrong one. A copy here of a topic that the active
site does not have is no topic for clients: they ask either site for the same thing.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from broker.metadata.core.peer_topics import PeerTopics
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.rules.acls import ResourceAcls
from wire.rules.client_quotas import QuotaEntity, QuotaValues, entity_from_message
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.links import SiteRole, governing_link, is_stand_in, links_of_group, links_of_topic, other_site, role_of
from wire.znodes.acl_znodes import merged_acls
from wire.znodes.group_configs import GroupConfigs
from wire.znodes.token_znodes import merged_tokens

NO_NODE = -1
UNKNOWN_EPOCH = -1


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


class StaleControllerEpoch(Exception):
    """The batch comes from a controller that has been replaced, or addresses an older registration
    of this broker.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """Leadership of one partition as the controller decided it."""

    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas whose brokers live but have lost the log directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic: id, config overrides and partitions by index (in order)."""

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopicImage:
    """A topic whose logs must go."""

    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTopic:
    """A topic as clients must see it: whose leaders, and which brokers can be named."""

    topic: TopicImage
    is_own_site: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """A broker's whole knowledge of its site and the peer sites; the module says where it comes
    from.
    """

    site: str
    node_id: int
    version: int = 0
    full_version: int = -1
    """The version that the last full image made: its sender may know nothing of what this broker
    has reported.
    """
    is_complete: bool = False
    cluster_id: str = ""
    controller_id: int = NO_NODE
    controller_epoch: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    departed: Mapping[int, BrokerInfo] = field(default_factory=dict)
    """Brokers of this site that have just gone. Metadata goes on listing them for a moment: a
    client that is to drop a broker and to move its partitions at once may lose sight of the new
    leaders (librdkafka does, until its next refresh).
    """
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    quarantined: frozenset[str] = frozenset()
    """Topics that the controller cannot read: what this broker has of them, in `topics` and in its
    logs, stays as it is.
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
    confirmed_epochs: Mapping[str, int] = field(default_factory=dict)
    peers: Mapping[str, SiteView] = field(default_factory=dict)
    peer_topics: Mapping[str, PeerTopics] = field(default_factory=dict)
    carriers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Memory of `links_of`: topic name to link names, shared by images with the same links."""

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
        """This broker's role for whatever the link carries."""
        if link is None:
            return LinkRole.LOCAL
        role = role_of(link, self.site)
        if role is SiteRole.PASSIVE:
            return LinkRole.PASSIVE
        if role is SiteRole.FENCED:
            return LinkRole.FENCED
        is_confirmed = self.confirmed_epochs.get(link.name, UNKNOWN_EPOCH) == link.epoch
        return LinkRole.ACTIVE if is_confirmed else LinkRole.UNCONFIRMED

    def role_of_topic(self, topic: str) -> LinkRole:
        """This broker's role for the topic."""
        return self.role_in(self.link_of(topic))

    def peer_of(self, link: LinkRecord) -> SiteView | None:
        """The other site's view, None before the first one."""
        return self.peers.get(other_site(link, self.site))

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """This site's own partition, None when there is none."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def routed_topic(self, topic: str) -> RoutedTopic | None:
        """The topic as a client must see it, None when no site that counts has it."""
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
            return RoutedTopic(topic=theirs, is_own_site=False)
        if own is None or self.peer_of(link) is not None:
            return None
        return RoutedTopic(topic=_without_leaders(own), is_own_site=False)

    def routed_topic_with_id(self, topic_id: bytes) -> RoutedTopic | None:
        """The topic with the id as a client must see it, None when no site that counts has it.

        A copy whose topic was deleted and made again at the active site has a name that is another
        topic's there: its id leads nowhere.
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
        both sites are led to it there.
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
        """Names of all topics that a client must see: the own ones, then those that only an active
        peer has yet.
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
    """Partition of an internal topic that keeps the name: the absolute value of Java's string hash,
    -2^31 as 0, as in Apache Kafka.
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


def check_fence(image: ClusterImage, batch: ControlBatch, *, broker_epoch: int) -> None:
    """Raise StaleControllerEpoch for a batch of an older controller or for an older registration of
    this broker.

    A process that has not registered yet (`broker_epoch` 0) takes nothing: what reaches it is meant
    for the one before it, whose leaderships it must not resume, because the unflushed end of their
    logs may be gone.
    """
    if batch.controller_epoch < image.controller_epoch:
        raise StaleControllerEpoch(
            f"controller {batch.controller_id} has epoch {batch.controller_epoch}, this broker follows {image.controller_epoch}"
        )
    if not broker_epoch or (batch.broker_epoch and batch.broker_epoch < broker_epoch):
        raise StaleControllerEpoch(
            f"the batch is for broker epoch {batch.broker_epoch}, the registration is {broker_epoch}"
        )


def apply_batch(image: ClusterImage, batch: ControlBatch) -> ClusterImage:
    """The image after the batch. A change that arrives before any full image is taken too: it names
    what it changes.
    """
    quarantined = frozenset(batch.quarantined_topics) if batch.is_full else image.quarantined
    kept = {name: image.topics[name] for name in quarantined if name in image.topics} if batch.is_full else image.topics
    topics = _merged_topics(kept, image.topics, batch)
    links = _merged_links({} if batch.is_full else image.links, image.links, batch)
    brokers = _merged_brokers(image.brokers, batch)
    has_same_links = links == image.links
    newly_leased = {
        name for name, link in links.items() if link.lease_ms and name in image.links and not image.links[name].lease_ms
    }
    return replace(
        image,
        version=image.version + 1,
        full_version=image.version + 1 if batch.is_full else image.full_version,
        is_complete=image.is_complete or batch.is_full,
        cluster_id=batch.cluster_id or image.cluster_id,
        controller_id=batch.controller_id,
        controller_epoch=batch.controller_epoch,
        brokers=brokers,
        departed={node: broker for node, broker in {**image.departed, **image.brokers}.items() if node not in brokers},
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        quarantined=quarantined,
        links=image.links if has_same_links else links,
        # what was confirmed without a bound needs a permit from now on
        confirmed_epochs=_without(image.confirmed_epochs, newly_leased),
        carriers=image.carriers if has_same_links else {},
        quotas=_merged_quotas(image.quotas, batch),
        scram_users=_merged_scram_users(image.scram_users, batch),
        acls=merged_acls(image.acls, batch.acls, is_full=batch.is_full),
        delegation_tokens=merged_tokens(image.delegation_tokens, batch.delegation_tokens, is_full=batch.is_full),
        group_configs=_merged_group_configs(image.group_configs, batch),
    )


def confirm_link(image: ClusterImage, link: str, epoch: int) -> ClusterImage | None:
    """The image with the link's epoch confirmed; None when this broker does not have the link at
    that epoch.
    """
    record = image.links.get(link)
    if record is None or record.epoch != epoch:
        return None
    if image.confirmed_epochs.get(link) == epoch:
        return image
    return replace(image, version=image.version + 1, confirmed_epochs={**image.confirmed_epochs, link: epoch})


def unconfirm_link(image: ClusterImage, link: str) -> ClusterImage:
    """The image with no epoch of the link confirmed: its permit has ended."""
    if link not in image.confirmed_epochs:
        return image
    return replace(image, version=image.version + 1, confirmed_epochs=_without(image.confirmed_epochs, {link}))


def _without(confirmed: Mapping[str, int], links: Collection[str]) -> Mapping[str, int]:
    return {name: epoch for name, epoch in confirmed.items() if name not in links} if links else confirmed


def without_departed(image: ClusterImage) -> ClusterImage:
    """The image once clients have had time to leave the brokers that went."""
    return replace(image, version=image.version + 1, departed={}) if image.departed else image


def with_peer_view(image: ClusterImage, view: SiteView) -> ClusterImage:
    """The image with the peer's view in place of its older one."""
    known = image.peers.get(view.site)
    if known is not None and known == view:
        return image
    topics = image.topics_of_peer(view.site).with_view(topic_image(topic) for topic in view.topics)
    return replace(
        image,
        version=image.version + 1,
        peers={**image.peers, view.site: view},
        peer_topics={**image.peer_topics, view.site: topics},
    )


def with_peer_reports(
    image: ClusterImage, site: str, reports: Iterable[tuple[TopicImage, bool]], *, at_ms: float
) -> ClusterImage:
    """The image after a broker of a peer reported topics, each with whether it was deleted
    there.
    """
    topics = image.topics_of_peer(site)
    for topic, is_deleted in reports:
        topics = topics.with_report(topic, is_deleted=is_deleted, at_ms=at_ms)
    return replace(image, version=image.version + 1, peer_topics={**image.peer_topics, site: topics})


def without_old_reports(image: ClusterImage, site: str, *, before_ms: float) -> ClusterImage:
    """The image once a view of the peer is so new that what was reported before is in it, or is not
    so any more.
    """
    known = image.topics_of_peer(site)
    topics = known.without_old_reports(before_ms=before_ms)
    if topics is known:
        return image
    return replace(image, version=image.version + 1, peer_topics={**image.peer_topics, site: topics})


def topic_image(topic: TopicInfo) -> TopicImage:
    """A topic from its wire form."""
    return TopicImage(
        name=topic.name,
        topic_id=bytes(topic.topic_id),
        configs=dict(topic.configs),
        partitions=_partition_images({}, topic.partitions),
    )


def partition_image(state: PartitionState) -> PartitionImage:
    """A partition from its wire form."""
    return PartitionImage(
        index=state.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline=tuple(state.offline_replicas),
    )


def _partition_images(
    known: Mapping[int, PartitionImage], states: Iterable[PartitionState]
) -> dict[int, PartitionImage]:
    merged = dict(known)
    merged.update((state.partition, partition_image(state)) for state in states)
    return dict(sorted(merged.items()))


def _shared(candidate: TopicImage, former: TopicImage | None) -> TopicImage:
    return former if former is not None and former == candidate else candidate


def _merged_brokers(former: Mapping[int, BrokerInfo], batch: ControlBatch) -> Mapping[int, BrokerInfo]:
    brokers = {broker.node_id: broker for broker in batch.brokers}
    return former if former == brokers else brokers


def _merged_topics(
    kept: Mapping[str, TopicImage], former: Mapping[str, TopicImage], batch: ControlBatch
) -> Mapping[str, TopicImage]:
    if not batch.is_full and not batch.topics and not batch.deleted_topics:
        return former
    topics = dict(kept)
    for deleted in batch.deleted_topics:
        found = topics.get(deleted.name)
        if found is not None and found.topic_id == deleted.topic_id:
            del topics[deleted.name]
    for named in batch.topics:
        known = topics.get(named.name)
        is_same_topic = known is not None and known.topic_id == named.topic_id
        partitions = known.partitions if known is not None and is_same_topic else {}
        merged = replace(topic_image(named), partitions=_partition_images(partitions, named.partitions))
        topics[named.name] = _shared(merged, former.get(named.name))
    return topics


def _merged_links(
    kept: Mapping[str, LinkRecord], former: Mapping[str, LinkRecord], batch: ControlBatch
) -> dict[str, LinkRecord]:
    """A link whose record the controller cannot read stays as this broker knows it."""
    links = {name: link for name, link in kept.items() if name not in batch.deleted_links}
    for link in batch.links:
        links[link.name] = former.get(link.name, link) if is_stand_in(link) else link
    return links


def _merged_quotas(former: Mapping[QuotaEntity, QuotaValues], batch: ControlBatch) -> Mapping[QuotaEntity, QuotaValues]:
    quotas = {} if batch.is_full else dict(former)
    for named in batch.client_quotas:
        quotas[entity_from_message(named.entity)] = dict(named.values)
    quotas = {entity: values for entity, values in quotas.items() if values}
    return former if former == quotas else quotas


def _merged_scram_users(
    former: Mapping[str, Mapping[str, str]], batch: ControlBatch
) -> Mapping[str, Mapping[str, str]]:
    users = {} if batch.is_full else dict(former)
    for named in batch.scram_users:
        users[named.name] = dict(named.credentials)
    users = {user: credentials for user, credentials in users.items() if credentials}
    return former if former == users else users


def _merged_group_configs(former: Mapping[str, GroupConfigs], batch: ControlBatch) -> Mapping[str, GroupConfigs]:
    configs = {} if batch.is_full else dict(former)
    for named in batch.group_configs:
        configs[named.group] = dict(named.configs)
    configs = {group: values for group, values in configs.items() if values}
    return former if former == configs else configs


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChange:
    """The work that a broker has to do after one image replaced another."""

    deleted: tuple[DeletedTopicImage, ...]
    changed: tuple[TopicImage, ...]
    """Topics that are new, or whose partitions, configs, link role or sync policy differ."""
    changed_links: tuple[LinkRecord, ...]


NO_CHANGE: Final = ImageChange(deleted=(), changed=(), changed_links=())


def difference(before: ClusterImage, after: ClusterImage) -> ImageChange:
    """The changes to this site's own topics between two images."""
    have_roles_changed = before.links is not after.links or before.confirmed_epochs is not after.confirmed_epochs
    if before.topics is after.topics and not have_roles_changed:
        return NO_CHANGE
    deleted = tuple(
        DeletedTopicImage(name=name, topic_id=topic.topic_id)
        for name, topic in before.topics.items()
        if before.topics is not after.topics and _is_gone(topic, after)
    )
    changed = tuple(
        topic
        for name, topic in after.topics.items()
        if before.topics.get(name) is not topic
        or (have_roles_changed and _part_in_link(before, name) != _part_in_link(after, name))
    )
    links = tuple(link for name, link in after.links.items() if before.links.get(name) != link)
    return ImageChange(deleted=deleted, changed=changed, changed_links=links)


def _part_in_link(image: ClusterImage, topic: str) -> tuple[LinkRole, str, int, int]:
    """Return the fields that a topic's partitions inherit from the link that carries it."""
    link = image.link_of(topic)
    return (
        (image.role_in(link), "", 0, 0)
        if link is None
        else (image.role_in(link), link.sync_policy, link.sync_timeout_ms, link.sync_bound_ms)
    )


def _is_gone(topic: TopicImage, after: ClusterImage) -> bool:
    found = after.topics.get(topic.name)
    return found is None or found.topic_id != topic.topic_id


def leads(image: ClusterImage, partitions: Iterable[PartitionImage]) -> Sequence[PartitionImage]:
    """Return the partitions that this broker leads."""
    return [partition for partition in partitions if partition.leader == image.node_id]
