"""The check of a mirror's request that writes access rules at the standby of its link: SCRAM users
and delegation tokens, by which others can log in. Like Kafka's own requests it needs Alter on the
cluster, besides the ClusterAction of all private APIs.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.authorization.authorizer import Authorizer
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.request_context import RequestContext
from wire.rules.acls import Operation

Refusal = tuple[ErrorCode, str | None]


def standby_refusal(
    authorizer: Authorizer, image: ClusterImage, context: RequestContext, link_name: str, link_epoch: int
) -> Refusal:
    """The reason why this site takes no access rules from this mirror at this epoch of the link;
    NONE if it does.
    """
    if not authorizer.may_cluster(context, Operation.ALTER):
        return ErrorCode.cluster_authorization_failed, f"{context.principal} has no Alter on the cluster"
    link = image.links.get(link_name)
    if link is None or link_epoch > link.epoch:
        return ErrorCode.unknown_leader_epoch, None
    if link_epoch < link.epoch:
        return ErrorCode.fenced_leader_epoch, None
    if image.role_in(link) is not LinkRole.PASSIVE:
        return ErrorCode.policy_violation, f"this site is not the standby of link {link.name}"
    return ErrorCode.none, None
