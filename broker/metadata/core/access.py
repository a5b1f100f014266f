"""Whether a request may access a topic here. The table of ARCHITECTURE.md as code, in Kafka error
codes.

Pure. `broker/replication/replicas.py` and handlers call this before they access a log. Replica ids:
-1 is a client, -2 a tool that reads any role's copy (Kafka's "debugging consumer"), -3 a mirror,
which reads where a client may. Both see what all in-sync replicas have, under a sync link too,
where the high watermark waits for the standby.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import DEBUGGING_CONSUMER
from wire.rules.links import truncates_logs


def write_error(image: ClusterImage, topic: str) -> ErrorCode:
    """The error that refuses a client's produce to the topic here; `none` when it is allowed."""
    link = image.link_of(topic)
    role = image.role_in(link)
    if role.may_write:
        return ErrorCode.none
    if link is not None and role is LinkRole.PASSIVE and not link.is_routed:
        return ErrorCode.policy_violation
    return ErrorCode.not_leader_or_follower


def read_error(image: ClusterImage, topic: str, *, replica_id: int) -> ErrorCode:
    """The error that refuses a fetch from the topic here; `none` when it is allowed."""
    link = image.link_of(topic)
    if replica_id == DEBUGGING_CONSUMER or link is None or not link.is_routed:
        return ErrorCode.none
    if image.role_in(link) is LinkRole.PASSIVE:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def mirror_error(image: ClusterImage, topic: str, *, link_name: str, link_epoch: int) -> ErrorCode:
    """The error that refuses appends of a mirror of the link at that epoch; `none` when they are
    allowed.
    """
    link = image.links.get(link_name)
    if link is None or link_epoch > link.epoch:
        return ErrorCode.unknown_leader_epoch
    if link_epoch < link.epoch:
        return ErrorCode.fenced_leader_epoch
    if image.link_of(topic) is not link or image.role_in(link) is not LinkRole.PASSIVE:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def promotion_error(image: ClusterImage, topic: str, *, link_name: str, link_epoch: int) -> ErrorCode:
    """The error that refuses a failover to write to the topic's logs here; `none` in an epoch that
    was raised for this site, while it accepts no writes yet.
    """
    link = image.links.get(link_name)
    if link is None or link_epoch > link.epoch:
        return ErrorCode.unknown_leader_epoch
    if link_epoch < link.epoch:
        return ErrorCode.fenced_leader_epoch
    if image.link_of(topic) is not link or image.role_in(link) is not LinkRole.UNCONFIRMED:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def truncation_error(image: ClusterImage, topic: str, *, link_name: str, link_epoch: int) -> ErrorCode:
    """The error that refuses a failover to truncate the topic's logs here: as `promotion_error`,
    and the epoch was raised by a failover that truncates.
    """
    error = promotion_error(image, topic, link_name=link_name, link_epoch=link_epoch)
    if error is ErrorCode.none and not truncates_logs(image.links[link_name]):
        return ErrorCode.not_leader_or_follower
    return error


def passive_link_for_new_topic(image: ClusterImage, topic: str) -> LinkRecord | None:
    """The link that forbids clients to create the topic here (the mirror will create it); None if
    they may.
    """
    link = image.link_of(topic)
    return link if image.role_in(link) is LinkRole.PASSIVE else None
