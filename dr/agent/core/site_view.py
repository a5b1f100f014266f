"""The description of a site that its peer gets, from the decoded contents of the site's ZooKeeper.

The version is a digest of the content, so every agent of a site reports the same version for the
same state, and a peer may ask any of them. Pure: `site_cache.py` keeps the facts up to date, and
`answers/link_descriptions.py` sends the view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from dr.agent.core.following import links_to_report
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.ids import NO_NODE
from wire.rules.leaderships import Leadership, digest_of
from wire.rules.links import carries_topic, governing_link, links_of_topic
from wire.rules.topic_names import is_internal_topic
from wire.znodes.broker_znodes import BrokerRegistration
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment

VERSION_BYTES = 7
"""A version fits a positive int64."""


class Place(NamedTuple):
    """The object that a znode describes: a topic, a broker, a link or the controller."""

    kind: str
    name: str


class SiteFacts(Struct, frozen=True, kw_only=True):
    """The content of a site's ZooKeeper. Brokers come with their epoch, partition states with their
    znode version.
    """

    site: str
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, tuple[BrokerRegistration, int]] = field(default_factory=dict)
    links: Mapping[str, LinkRecord] = field(default_factory=dict)
    topics: Mapping[str, TopicAssignment] = field(default_factory=dict)
    states: Mapping[tuple[str, int], tuple[StoredPartitionState, int]] = field(default_factory=dict)
    unreadable: Mapping[Place, str] = field(default_factory=dict)
    """The reasons why znodes are unreadable."""

    def has_lowest_node_id(self, grpc_address: str) -> bool:
        """True if the live broker with the lowest node id has this address: its agent does the work
        that a site needs from one agent only. This is not an election: two agents may do the work
        for a moment, which does no harm.
        """
        lowest = min(self.brokers, default=None)
        return lowest is not None and self.brokers[lowest][0].grpc_address == grpc_address

    def has_leaders(self, link: LinkRecord) -> bool:
        """True if a live broker leads each partition that the link carries."""
        if any(place.kind == "topic" and carries_topic(link, place.name) for place in self.unreadable):
            return False
        leaders = (
            self.states[topic, index][0].leader if (topic, index) in self.states else NO_NODE
            for topic, assignment in self.topics.items()
            if carries_topic(link, topic)
            for index in assignment.partitions
        )
        return all(leader in self.brokers for leader in leaders)

    def leaders_digest(self, link: LinkRecord) -> int:
        """The digest of the leaders of the link's partitions."""
        return digest_of(
            (
                Leadership(topic, index, state.leader, state.leader_epoch)
                for (topic, index), (state, _) in self.states.items()
                if topic in self.topics and index in self.topics[topic].partitions and carries_topic(link, topic)
            ),
            floor=link.leader_epoch_floor,
        )


def links_between(links: Iterable[LinkRecord], one: str, other: str) -> list[LinkRecord]:
    """Links that join the two sites, by name."""
    return sorted(
        (link for link in links if {link.source_site, link.target_site} == {one, other}), key=lambda link: link.name
    )


def unknown_link(facts: SiteFacts, *, asking_site: str) -> str:
    """Return the reason why a peer gets no view of this site; empty when it gets one. The
    unreadable link may be the one that joins the two sites. In a view without that link its topics
    would look deleted to the peer's clients. Without an answer the peer keeps its current view.
    """
    if not asking_site or links_between(facts.links.values(), facts.site, asking_site):
        return ""
    lost = (
        problem for place, problem in facts.unreadable.items() if place.kind == "link" and place.name not in facts.links
    )
    return next(lost, "")


class ViewedTopics(Struct, frozen=True, kw_only=True):
    """The topics of a view, and their digest."""

    topics: Sequence[TopicInfo]
    version: int


def shown_topics(facts: SiteFacts, *, asking_site: str) -> tuple[str, ...]:
    """Names of the topics of one peer's view: those of the links between the two sites, and those
    that clients of either site may request.
    """
    links = links_between(facts.links.values(), facts.site, asking_site)
    return tuple(sorted(topic for topic in facts.topics if _is_shown(facts, links, topic)))


def viewed_topics(facts: SiteFacts, shown: Iterable[str]) -> ViewedTopics:
    """Describe these topics."""
    topics = [_topic_info(facts, topic) for topic in shown]
    return ViewedTopics(topics=topics, version=_digest(SiteView(topics=topics)))


def _digest(view: SiteView) -> int:
    digest = hashlib.blake2b(view.SerializeToString(deterministic=True), digest_size=VERSION_BYTES).digest()
    # never 0, which in a request means that the peer has nothing yet
    return int.from_bytes(digest, "big") + 1


def brief_view(facts: SiteFacts, topics_version: int, *, asking_site: str) -> SiteView:
    """The view for one peer that has topics of this version already: all brokers, and the links
    that name it. Few of a site's changes are changes of topics, and there may be thousands.
    """
    view = SiteView(
        site=facts.site,
        cluster_id=facts.cluster_id,
        controller_id=facts.controller_id,
        brokers=[broker_info(*facts.brokers[node]) for node in sorted(facts.brokers)],
        topics_version=topics_version,
        has_known_topics=True,
        group_coordinators=_group_coordinators(facts),
        links=links_to_report(facts.links.values(), asking_site),
    )
    view.version = _digest(view)
    return view


def whole_view(brief: SiteView, topics: Iterable[TopicInfo]) -> SiteView:
    """The view with its topics."""
    view = SiteView(topics=topics)
    view.MergeFrom(brief)
    view.has_known_topics = False
    return view


def without_topics(view: SiteView) -> SiteView:
    """The view for a receiver that has its topics; unchanged if they have no version."""
    if not view.topics_version:
        return view
    brief = SiteView()
    brief.CopyFrom(view)
    brief.ClearField("topics")
    brief.has_known_topics = True
    return brief


def matters_to_peers(links: Collection[LinkRecord], topic: str) -> bool:
    """True if any peer may see the topic. Clients of a routed link know the brokers of both sites,
    and may ask any of them for any topic.
    """
    if any(carries_topic(link, topic) for link in links):
        return True
    return not is_internal_topic(topic) and any(link.is_routed for link in links)


def _is_shown(facts: SiteFacts, links: Collection[LinkRecord], topic: str) -> bool:
    if any(carries_topic(link, topic) for link in links):
        return True
    # a topic of which this site holds only a copy: the active site of that link answers for it
    other = governing_link(links_of_topic(facts.links.values(), topic), facts.site)
    is_at_home = other is None or other.active_site == facts.site
    return is_at_home and matters_to_peers(links, topic)


def broker_info(registration: BrokerRegistration, broker_epoch: int) -> BrokerInfo:
    """A broker's registration as a protobuf message."""
    return BrokerInfo(
        node_id=registration.node_id,
        broker_epoch=broker_epoch,
        rack=registration.rack,
        endpoints=[
            Endpoint(listener=end.listener, host=end.host, port=end.port, security_protocol=end.security_protocol)
            for end in registration.endpoints
        ],
        grpc_address=registration.grpc_address,
    )


def _topic_info(facts: SiteFacts, topic: str) -> TopicInfo:
    assignment = facts.topics[topic]
    return TopicInfo(name=topic, topic_id=assignment.topic_id, partitions=_partition_states(facts, topic, assignment))


def _partition_states(facts: SiteFacts, topic: str, assignment: TopicAssignment) -> Iterator[PartitionState]:
    for partition in sorted(assignment.partitions):
        replicas = assignment.partitions[partition]
        stored = facts.states.get((topic, partition))
        if stored is None:
            yield PartitionState(partition=partition, leader=NO_NODE, leader_epoch=-1, replicas=replicas)
            continue
        state, version = stored
        yield PartitionState(
            partition=partition,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=version,
            controller_epoch=state.controller_epoch,
            replicas=replicas,
            isr=state.isr,
        )


def _group_coordinators(facts: SiteFacts) -> list[int]:
    assignment = facts.topics.get(OFFSETS_TOPIC)
    if assignment is None:
        return []
    states = (facts.states.get((OFFSETS_TOPIC, partition)) for partition in sorted(assignment.partitions))
    return [NO_NODE if stored is None else stored[0].leader for stored in states]
