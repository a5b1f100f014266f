"""The filter of a DescribeAcls or DeleteAcls request, and the refusal of all requests about ACLs at
brokers without an authorizer.
"""

from __future__ import annotations

from typing import Any, Final

from wire.rules.acls import AclFilter, Operation, PatternType, Permission, ResourceType

NO_AUTHORIZER: Final = "No Authorizer is configured."
"""Kafka's message of SECURITY_DISABLED."""


def filter_of(entity: Any) -> AclFilter:
    """The filter of a DescribeAcls or DeleteAcls request. Raises ValueError for a number that the
    protocol does not define.
    """
    return AclFilter(
        resource_type=ResourceType(entity.resource_type_filter),
        name=entity.resource_name_filter,
        pattern_type=PatternType(entity.pattern_type_filter),
        principal=entity.principal_filter,
        host=entity.host_filter,
        operation=Operation(entity.operation),
        permission=Permission(entity.permission_type),
    )
