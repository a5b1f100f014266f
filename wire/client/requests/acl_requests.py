"""ACLs through Kafka's Admin API: lists, adds and removes them.

A cluster without an authorizer answers SECURITY_DISABLED (`BrokerError`). A cluster that does not
allow us to list ACLs answers CLUSTER_AUTHORIZATION_FAILED. Source: KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from wire.client.raw_client import KafkaClient
from wire.client.requests.answer_checks import check_outcome, controller_connection
from wire.rules.acls import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31


async def describe_acls(client: KafkaClient, wanted: AclFilter) -> set[Acl]:
    """Return all ACLs that the filter matches. BrokerError when the cluster refuses to describe
    them.
    """
    connection = await controller_connection(client)
    answer = await connection.call(DESCRIBE_ACLS, _filter_fields(wanted))
    check_outcome(answer, connection, DESCRIBE_ACLS)
    return {acl for resource in answer.resources for acl in _acls_of(resource)}


async def create_acls(client: KafkaClient, acls: Collection[Acl]) -> None:
    """Add the ACLs; an existing one is unchanged. BrokerError of the first that is refused."""
    connection = await controller_connection(client)
    creations = [
        {
            "resource_type": acl.pattern.resource_type,
            "resource_name": acl.pattern.name,
            "resource_pattern_type": acl.pattern.pattern_type,
            "principal": acl.entry.principal,
            "host": acl.entry.host,
            "operation": acl.entry.operation,
            "permission_type": acl.entry.permission,
        }
        for acl in acls
    ]
    answer = await connection.call(CREATE_ACLS, {"creations": creations})
    for result in answer.results:
        check_outcome(result, connection, CREATE_ACLS)


async def delete_acls(client: KafkaClient, filters: Collection[AclFilter]) -> set[Acl]:
    """Remove what the filters mean; the ACLs that are gone. BrokerError of the first filter that is
    refused.
    """
    connection = await controller_connection(client)
    answer = await connection.call(DELETE_ACLS, {"filters": [_filter_fields(wanted) for wanted in filters]})
    removed: set[Acl] = set()
    for result in answer.filter_results:
        check_outcome(result, connection, DELETE_ACLS)
        # a filter may succeed although the deletion of one of its ACLs failed
        for matching in result.matching_acls:
            check_outcome(matching, connection, DELETE_ACLS)
            removed.add(Acl(_pattern(matching, matching.pattern_type), _entry(matching)))
    return removed


def exactly(acl: Acl) -> AclFilter:
    """The filter that means this ACL and no other."""
    pattern, entry = acl
    return AclFilter(
        resource_type=pattern.resource_type,
        name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acls_of(resource: Any) -> Iterator[Acl]:
    pattern = _pattern(resource, resource.pattern_type)
    return (Acl(pattern, _entry(acl)) for acl in resource.acls)


def _pattern(found: Any, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(ResourceType(found.resource_type), found.resource_name, PatternType(pattern_type))


def _entry(found: Any) -> AccessEntry:
    return AccessEntry(found.principal, found.host, Operation(found.operation), Permission(found.permission_type))
