"""Computes a new image from an older one and batches of the controller, confirmed link epochs, or
views and reports of peers.

Unchanged parts are the same objects in both images.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage, at_floor, shared
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.rules.client_quotas import QuotaEntity, QuotaValues, entity_from_message
from wire.rules.links import LinkEpoch, check_pattern, is_stand_in, link_epoch, patterns_of
from wire.znodes.acl_znodes import merged_acls
from wire.znodes.group_configs import GroupConfigs
from wire.znodes.token_znodes import merged_tokens


class StaleControllerEpoch(Exception):
    """The batch comes from a controller that has been replaced, or addresses an older registration
    of this broker.
    """


class OtherCluster(Exception):
    """A batch comes from the controller of another cluster."""


def check_fence(image: ClusterImage, batch: ControlBatch, *, broker_epoch: int) -> None:
    """Raise StaleControllerEpoch for a batch of an older controller or for an older registration of
    this broker.

    A process that has not registered yet (`broker_epoch` 0) accepts nothing: batches that reach it
    are addressed to its predecessor. It must not resume the predecessor's leaderships, because the
    unflushed end of their logs may be lost. Raise OtherCluster for a batch of another cluster id
    than that of the images before.
    """
    if image.cluster_id and batch.cluster_id and batch.cluster_id != image.cluster_id:
        raise OtherCluster(
            f"controller {batch.controller_id} is of cluster {batch.cluster_id!r}, this broker of {image.cluster_id!r}"
        )
    if batch.controller_epoch < image.controller_epoch:
        raise StaleControllerEpoch(
            f"controller {batch.controller_id} has epoch {batch.controller_epoch}, this broker follows {image.controller_epoch}"
        )
    # without a registration, the batch was meant for an earlier process at this address
    if not broker_epoch or (batch.broker_epoch and batch.broker_epoch < broker_epoch):
        raise StaleControllerEpoch(
            f"the batch is for broker epoch {batch.broker_epoch}, the registration is {broker_epoch}"
        )


def apply_batch(image: ClusterImage, batch: ControlBatch) -> ClusterImage:
    """The image after the batch. A change that arrives before any full image is applied too: it
    contains all that it changes. ValueError for numbers of ACLs that the protocol does not define,
    and InvalidPattern for a link whose filters cannot be matched: each request for a topic would
    fail by them.
    """
    # before anything is built: a pattern that cannot be compiled must not replace a good image
    for link in batch.links:
        for pattern in patterns_of(link):
            check_pattern(pattern)
    quarantined = frozenset(batch.quarantined_topics) if batch.is_full else image.quarantined
    # a topic in quarantine is malformed in ZooKeeper: its last good state stays
    kept = {name: image.topics[name] for name in quarantined if name in image.topics} if batch.is_full else image.topics
    topics = _raised_topics(_merged_topics(kept, image.topics, batch), batch)
    links = _merged_links({} if batch.is_full else image.links, image.links, batch)
    brokers = _merged_brokers(image.brokers, batch)
    has_same_links = links == image.links
    newly_leased = {
        name for name, link in links.items() if link.lease_ms and name in image.links and not image.links[name].lease_ms
    }
    # ZooKeeper may have older data later, and the record of an epoch that the peer has left since
    passed = {
        name for name, known in image.confirmed_epochs.items() if name in links and link_epoch(links[name]) != known
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
        deleted_ids=frozenset(bytes(deleted.topic_id) for deleted in batch.deleted_topics),
        broker_epoch=batch.broker_epoch,
        removed_replicas={
            (bytes(removed.topic_id), index): removed.registrations_zxid
            for removed in batch.removed_replicas
            for index in removed.partitions
        },
        quarantined=quarantined,
        links=image.links if has_same_links else links,
        # an epoch that was confirmed without a time limit needs a permit from now on
        confirmed_epochs=_without(image.confirmed_epochs, newly_leased | passed),
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
    # the confirmation may be about a later or earlier record than this broker has
    if record is None or record.epoch != epoch:
        return None
    confirmed = link_epoch(record)
    if image.confirmed_epochs.get(link) == confirmed:
        return image
    return replace(image, version=image.version + 1, confirmed_epochs={**image.confirmed_epochs, link: confirmed})


def unconfirm_link(image: ClusterImage, link: str) -> ClusterImage:
    """The image with no epoch of the link confirmed: its permit has ended."""
    if link not in image.confirmed_epochs:
        return image
    # the version grows: listeners and cached responses depend on it
    return replace(image, version=image.version + 1, confirmed_epochs=_without(image.confirmed_epochs, {link}))


def _without(confirmed: Mapping[str, LinkEpoch], links: Collection[str]) -> Mapping[str, LinkEpoch]:
    return {name: known for name, known in confirmed.items() if name not in links} if links else confirmed


def without_departed(image: ClusterImage) -> ClusterImage:
    """The image after clients have had time to leave the brokers that disappeared."""
    return replace(image, version=image.version + 1, departed={}) if image.departed else image


def lacks_topics(image: ClusterImage, view: SiteView) -> bool:
    """True if the view leaves out topics that the image does not have."""
    known = image.peers.get(view.site)
    return view.has_known_topics and (known is None or known.topics_version != view.topics_version)


def with_peer_view(image: ClusterImage, view: SiteView) -> ClusterImage:
    """The image with the peer's view in place of its older one. The view names its topics, or the
    image has those of the same version.
    """
    known, topics = image.peers.get(view.site), image.topics_of_peer(view.site)
    if known is not None and known == view:
        return image
    viewed = topics.viewed.values() if view.has_known_topics else map(topic_image, view.topics)
    topics = topics.with_view(viewed)
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
    """The image after a peer's view so new that it includes, or has superseded, all earlier
    reports.
    """
    known = image.topics_of_peer(site)
    topics = known.without_old_reports(before_ms=before_ms)
    if topics is known:
        return image
    return replace(image, version=image.version + 1, peer_topics={**image.peer_topics, site: topics})


def topic_image(topic: TopicInfo) -> TopicImage:
    """A topic from its wire form."""
    return _topic_image(topic, {})


def _topic_image(topic: TopicInfo, known: Mapping[int, PartitionImage]) -> TopicImage:
    return TopicImage(
        name=topic.name,
        topic_id=bytes(topic.topic_id),
        configs=dict(topic.configs),
        partitions=_partition_images(known, topic.partitions),
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
    return merged if len(merged) == len(known) else dict(sorted(merged.items()))


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
        topics[named.name] = shared(_topic_image(named, partitions), former.get(named.name))
    return topics


def _raised_topics(topics: Mapping[str, TopicImage], batch: ControlBatch) -> Mapping[str, TopicImage]:
    """The topics after the raises of leader epochs that the batch names."""
    if not batch.epoch_raises:
        return topics
    raised = dict(topics)
    for epoch_raise in batch.epoch_raises:
        for name in epoch_raise.topics:
            if name in topics:
                raised[name] = at_floor(raised[name], epoch_raise.floor)
    return raised


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
