"""The part of a broker for a topic in one image: the same for each of its partitions."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.core.access import read_error, write_error
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import CONSUMER
from wire.rules.links import SyncPolicy, blocks, sync_policy, truncates_logs


class TopicRole(Struct, frozen=True, kw_only=True):
    """This broker's part for a topic in one image, the same for each of its partitions."""

    link: LinkRecord | None
    role: LinkRole
    role_name: str
    write_error: ErrorCode
    """The error for a write, by the link's role."""
    read_error: ErrorCode
    leader_epoch_floor: int
    """Nothing is written under a leader epoch below this one: the former active site may have used
    it. 0 without a link.
    """
    lossy_floor: int
    """The same floor if the promotion may have lost acknowledged records, else 0."""
    has_standby_terms: bool
    """True if leaders may have to wait for a standby, on the terms of `Standbys.terms`."""


def lossy_floor(link: LinkRecord | None) -> int:
    """The floor of leader epochs since a promotion of the link that may have lost acknowledged
    records; 0 without one. On a link with sync=block the standby had every acknowledged record, but
    a failover that truncates removes records that were acknowledged, there too.
    """
    return 0 if link is None or (blocks(link) and not truncates_logs(link)) else link.leader_epoch_floor


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
        leader_epoch_floor=0 if link is None else link.leader_epoch_floor,
        lossy_floor=lossy_floor(link),
        has_standby_terms=link is not None and sync_policy(link) is not SyncPolicy.NONE,
    )
