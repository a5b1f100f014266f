"""Access control lists as all parts of a site understand them: resources, operations, single ACLs
and filters, by their numbers in the protocol and their names in Kafka's ZooKeeper layout. Pure.

Callers: brokers authorize by them, the controller stores them, mirrors and the command line carry
them. Source: KIP-11, KIP-290, KIP-140, `org.apache.kafka.common.acl`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from wire.rules.principals import parse_principal

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type Cluster."""
WILDCARD: Final = "*"
"""Every resource of the type as a literal resource name; every host as a host."""


class ResourceType(enum.IntEnum):
    """The type of a resource that an ACL protects."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """The way in which an ACL names resources; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """The operation of a principal on a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Whether an ACL grants or refuses."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about; `pattern_type` is LITERAL or PREFIXED."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return f"{camel_case(self.resource_type)}:{self.pattern_type.name}:{self.name}"


class AccessEntry(NamedTuple):
    """The principal, host, operation and permission of an ACL; `principal` in the form
    `User:alice`.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One access control list entry with its resources; the protocol calls it an ACL."""

    pattern: ResourcePattern
    entry: AccessEntry

    def __str__(self) -> str:
        entry = self.entry
        return f"{entry.permission.name} {entry.principal} {entry.operation.name} {self.pattern} from {entry.host}"


class AclFilter(NamedTuple):
    """The ACLs that a request selects; None and ANY leave a part open (KIP-140, KIP-290)."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """True when ACLs with this pattern are meant. MATCH means every pattern that concerns a
        resource of the name.
        """
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH or pattern.name == self.name:
            return pattern.name == self.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: AccessEntry) -> bool:
        """True when entries like this one are meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, acl: Acl) -> bool:
        """True when the ACL is meant."""
        return self.matches_pattern(acl.pattern) and self.matches_entry(acl.entry)


ResourceAcls = Mapping[ResourcePattern, frozenset[AccessEntry]]
"""All ACLs of a site by pattern, as they are stored."""

OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""The operations that each type of resource has; authorized-operations fields name no others."""


def camel_case(member: enum.IntEnum) -> str:
    """The name in Kafka's JSON, such as `ClusterAction` or `TransactionalId`."""
    return "".join(word.capitalize() for word in member.name.split("_"))


def refusal_of_acl(acl: Acl) -> str | None:
    """Return the reason in Kafka's words why such an ACL is impossible, None if it is possible."""
    if acl.pattern.resource_type is ResourceType.ANY:
        return "ResourceType must not be ANY"
    if acl.pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return "PatternType must not be ANY or MATCH"
    if not acl.pattern.name:
        return "Invalid empty resource name"
    if acl.pattern.resource_type is ResourceType.CLUSTER and acl.pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if acl.entry.operation is Operation.ANY:
        return "Operation must not be ANY"
    if acl.entry.permission is Permission.ANY:
        return "Permission type must not be ANY"
    if not acl.entry.host:
        return "Host must not be empty"
    try:
        parse_principal(acl.entry.principal)
    except ValueError as error:
        return str(error)
    return None
