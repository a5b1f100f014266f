"""Limits the principal of a mirror to what its links carry (`antipode.mirror.principals`). Pure.

A mirror has ClusterAction, which by itself opens every topic and every private API. For a principal
of the list, ClusterAction holds only for the requests that a mirror makes, and only topics count
that its links carry. The topics of offsets and of transactions count too, because a mirror reads
there what it carries. The ACLs decide as well: this module only denies, and never allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from broker.authorization.core.acl_table import Verdict
from wire.protocol.messages.access_change_messages import ACCESS_CHANGES, STANDBY_RULES
from wire.protocol.messages.delegation_token_messages import DELEGATION_TOKENS
from wire.protocol.messages.group_offset_messages import CARRIED_OFFSETS, MIRROR_GROUP_OFFSETS
from wire.protocol.messages.link_messages import LINK_PROGRESS, MIRROR_TRANSACTIONAL_IDS
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.mirror_report_messages import MIRROR_REPORTS
from wire.protocol.messages.private import COMPRESS_CONNECTION, MIRROR_OFFSET_COMMIT, SITE_METADATA
from wire.protocol.messages.quarantine_messages import QUARANTINE_RECORDS
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.rules.acls import Operation, ResourceType
from wire.rules.topic_names import is_internal_topic

_FETCH, _LIST_OFFSETS, _OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
CLAIMING_APIS: Final = frozenset(
    {
        MIRROR_APPEND,
        MIRROR_OFFSET_COMMIT,
        MIRROR_GROUP_OFFSETS,
        CARRIED_OFFSETS,
        LINK_PROGRESS,
        MIRROR_REPORTS,
        MIRROR_TRANSACTIONAL_IDS,
        QUARANTINE_RECORDS,
        SCRAM_USERS,
        DELEGATION_TOKENS,
        ACCESS_CHANGES,
        STANDBY_RULES,
    }
)
"""Private requests in the name of a link."""
MIRROR_APIS: Final = CLAIMING_APIS | {
    SITE_METADATA,
    COMPRESS_CONNECTION,
    _FETCH,
    _LIST_OFFSETS,
    _OFFSET_FOR_LEADER_EPOCH,
}
"""Requests for which a mirror needs ClusterAction."""


class MirrorScope(Struct, frozen=True):
    """The links for which one principal acts."""

    principal: str
    links: frozenset[str]

    def __str__(self) -> str:
        return f"{self.principal} acts for link {' and '.join(sorted(self.links))} alone (antipode.mirror.principals)"

    def refusal(
        self, operation: Operation, resource_type: ResourceType, name: str, *, api_key: int, carried_by: Iterable[str]
    ) -> Verdict | None:
        """The verdict that refuses the operation; None if the ACLs decide. `carried_by`: the links
        that carry the topic `name`.
        """
        if resource_type is ResourceType.TOPIC and not is_internal_topic(name):
            return None if self.links.intersection(carried_by) else Verdict(False, f"{self}, which does not carry it")
        if operation is Operation.CLUSTER_ACTION and api_key not in MIRROR_APIS:
            return Verdict(False, f"{self}, and mirrors send no such request")
        return None

    def claim_refusal(self, link: str) -> str:
        """Why a request in the name of the link is refused; empty if it is not."""
        return "" if link in self.links else f"{self}, not for link {link!r}"
