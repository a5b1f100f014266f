"""Which ACLs the copies of a source's topics shall have: those of the source, made readers'.

The right to write to the original gives no right to write to the copy, so an ALLOW is reduced to
reading: READ and both kinds of DESCRIBE stay, ALL becomes READ, other operations are dropped. A
DENY is carried unchanged. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from mirror.link.core.naming import Naming, NamingPolicy
from wire.rules.acls import (
    ALLOW,
    LITERAL,
    OPERATION_ALL,
    OPERATION_DESCRIBE,
    OPERATION_DESCRIBE_CONFIGS,
    OPERATION_READ,
    PREFIXED,
    WILDCARD,
    TopicAcl,
)

_AS_THEY_ARE = frozenset({OPERATION_READ, OPERATION_DESCRIBE, OPERATION_DESCRIBE_CONFIGS})


def wanted_acls(
    source: Iterable[TopicAcl],
    *,
    naming: Naming,
    carries: Callable[[str], bool],
    excluded_principals: Sequence[str] = (),
) -> frozenset[TopicAcl]:
    """What the target's topics shall have of the source's ACLs; principals are left out by
    whole-name expressions.
    """
    found: set[TopicAcl] = set()
    for acl in source:
        if any(re.fullmatch(pattern, acl.principal) for pattern in excluded_principals):
            continue
        place = _at_target(acl, naming, carries)
        operation = _operation(acl)
        if place is not None and operation is not None:
            resource_name, pattern_type = place
            found.add(acl._replace(resource_name=resource_name, pattern_type=pattern_type, operation=operation))
    return frozenset(found)


def _operation(acl: TopicAcl) -> int | None:
    if acl.permission_type != ALLOW or acl.operation in _AS_THEY_ARE:
        return acl.operation
    return OPERATION_READ if acl.operation == OPERATION_ALL else None


def _at_target(acl: TopicAcl, naming: Naming, carries: Callable[[str], bool]) -> tuple[str, int] | None:
    """The copies that an ACL is for. With the source's alias before every name a pattern stays one;
    without, it could concern topics of the target's own.
    """
    if acl.pattern_type == LITERAL and acl.resource_name != WILDCARD:
        return (naming.target_name(acl.resource_name), LITERAL) if carries(acl.resource_name) else None
    if naming.policy is not NamingPolicy.PREFIX:
        return None
    if acl.pattern_type == PREFIXED:
        return naming.target_name(acl.resource_name), PREFIXED
    return naming.target_name(""), PREFIXED


def changes(
    wanted: Collection[TopicAcl], *, actual: Collection[TopicAcl], wanted_before: Collection[TopicAcl]
) -> tuple[frozenset[TopicAcl], frozenset[TopicAcl]]:
    """What to add, and what to remove: only ACLs that the source had at the last look, never those
    that were made at the target.
    """
    return frozenset(wanted) - frozenset(actual), (frozenset(wanted_before) - frozenset(wanted)) & frozenset(actual)
