"""The part of a broker for a topic in one image: the same for each of its partitions."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.core.access import read_error, write_error
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import CONSUMER
from wire.rules.links import SyncPolicy, sync_policy


class TopicRole(Struct, frozen=True, kw_only=True):
    """This broker's part for a topic in one image, the same for each of its partitions."""

    link: LinkRecord | None
    role: LinkRole
    role_name: str
    write_error: ErrorCode
    read_error: ErrorCode
    has_standby_terms: bool
    """True if leaders may have to wait for a standby, on the terms of `Standbys.terms`."""

    def write_error_at(self, leader_epoch: int) -> ErrorCode:
        """The error for a write, by the link's role. Nothing is written under a leader epoch that
        the former active site may have used.
        """
        if self.link is not None and leader_epoch < self.link.leader_epoch_floor:
            return ErrorCode.not_leader_or_follower
        return self.write_error


def role_of_topic(image: ClusterImage, topic: str) -> TopicRole:
    """The part of this broker for the topic."""
    link = image.link_of(topic)
    role = image.role_in(link)
    return TopicRole(
        link=link,
        role=role,
        role_name=role.value,
        write_error=write_error(image, topic),
        read_error=read_error(image, topic, replica_id=CONSUMER),
        has_standby_terms=link is not None and sync_policy(link) is not SyncPolicy.NONE,
    )
