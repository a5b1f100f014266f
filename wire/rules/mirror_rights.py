"""The rights that the principals of an exact link's mirror need at each site: these and no others.
Pure. `tests/integration/test_rights_of_a_mirror.py` proves that they suffice and that each is
needed.
"""

from __future__ import annotations

from typing import Final

from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.rules.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

Right = tuple[ResourceType, str, Operation]
"""Type and name of the resource, operation."""

AT_THE_ACTIVE_SITE: Final[tuple[Right, ...]] = (
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS),
    (ResourceType.TOPIC, WILDCARD, Operation.DESCRIBE),
    (ResourceType.TOPIC, WILDCARD, Operation.DESCRIBE_CONFIGS),
    (ResourceType.TOPIC, TRANSACTIONS_TOPIC, Operation.READ),
    (ResourceType.GROUP, WILDCARD, Operation.DESCRIBE),
    (ResourceType.GROUP, WILDCARD, Operation.DESCRIBE_CONFIGS),
)
AT_THE_STANDBY: Final[tuple[Right, ...]] = (
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER_CONFIGS),
    (ResourceType.TOPIC, WILDCARD, Operation.DESCRIBE),
    (ResourceType.TOPIC, WILDCARD, Operation.DESCRIBE_CONFIGS),
    (ResourceType.GROUP, WILDCARD, Operation.DESCRIBE),
    (ResourceType.GROUP, WILDCARD, Operation.ALTER_CONFIGS),
)
IN_BOTH_DIRECTIONS: Final = tuple(dict.fromkeys((*AT_THE_ACTIVE_SITE, *AT_THE_STANDBY)))
"""For one principal at both sites: a failover turns the direction."""


def acl_of(principal: str, right: Right) -> Acl:
    """The ACL that gives a principal, in the form `User:name`, the right from every address."""
    kind, name, operation = right
    entry = AccessEntry(principal, WILDCARD, operation, Permission.ALLOW)
    return Acl(ResourcePattern(kind, name, PatternType.LITERAL), entry)
