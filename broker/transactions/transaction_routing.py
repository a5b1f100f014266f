"""Finds the broker that coordinates a transactional id.

In this site the leader of its partition of `__transaction_state`. A site that is passive in every
routed link it has sends producers to the active site, where the topics are that they write to; a
transaction cannot span topics that different sites lead. Read from the image at each question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage, LinkRole, group_partition
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import NO_NODE


class TransactionRouting:
    """The coordinators of transactional ids, by the newest image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def partition_count(self) -> int:
        """Partitions of `__transaction_state`, 0 while it does not exist."""
        topic = self._image().topics.get(TRANSACTIONS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, transactional_id: str) -> int | None:
        """The partition that keeps the transactional id, None while there is none."""
        count = self.partition_count()
        return group_partition(transactional_id, count) if count else None

    def coordinator(self, transactional_id: str) -> int:
        """Node id of this site's coordinator, -1 when there is none now."""
        partition = self.partition_of(transactional_id)
        found = None if partition is None else self._image().partition(TRANSACTIONS_TOPIC, partition)
        return NO_NODE if found is None else found.leader

    def is_fenced(self, topics: Iterable[str]) -> bool:
        """True while a link is fenced that carries one of the topics, or groups (with
        `__consumer_offsets` among the topics).
        """
        image = self._image()
        fenced = [link for link in image.links.values() if image.role_in(link) is LinkRole.FENCED]
        return bool(fenced) and any(topic == OFFSETS_TOPIC or image.link_of(topic) in fenced for topic in topics)

    def is_in_doubt(self) -> bool:
        """True while no other site has confirmed that this one is active in a routed link: another
        site may have been promoted, and may coordinate.
        """
        image = self._image()
        roles = {image.role_in(link) for link in image.links.values() if link.is_routed}
        return LinkRole.UNCONFIRMED in roles and LinkRole.ACTIVE not in roles

    def is_unconfirmed(self, topics: Iterable[str]) -> bool:
        """True if this site is in doubt about one of the topics, or about groups (as for
        `is_fenced`).
        """
        image = self._image()
        return self.is_in_doubt() and any(
            topic == OFFSETS_TOPIC or image.role_of_topic(topic) is LinkRole.UNCONFIRMED for topic in topics
        )

    def is_moving(self) -> bool:
        """True while a fence has stopped the last routed link for which this site was active:
        another site is about to coordinate.
        """
        image = self._image()
        roles = {image.role_in(link) for link in image.links.values() if link.is_routed}
        return LinkRole.FENCED in roles and roles <= {LinkRole.FENCED, LinkRole.PASSIVE}

    def active_elsewhere(self) -> LinkRecord | None:
        """The link to the site that coordinates transactions in this one's stead, None when this
        one does.
        """
        image = self._image()
        routed = [link for link in image.links.values() if link.is_routed]
        if not routed or any(image.role_in(link) is not LinkRole.PASSIVE for link in routed):
            return None
        return min(routed, key=lambda link: link.name)

    def mirror_error(self, *, link: str, link_epoch: int) -> ErrorCode:
        """The error that refuses transactional ids from a mirror of the link at that epoch; `none`
        when they are allowed. The errors are those of mirrored records. If there are several links,
        only the link to the site that coordinates for this site may report ids.
        """
        record = self._image().links.get(link)
        if record is None or link_epoch > record.epoch:
            return ErrorCode.unknown_leader_epoch
        if link_epoch < record.epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.none if self.active_elsewhere() is record else ErrorCode.not_coordinator
