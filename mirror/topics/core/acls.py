"""Derives the ACLs of a source's copies: the ACLs of the source, reduced to reading.

The right to write to the original gives no right to write to the copy, so an ALLOW is reduced to
reading: READ and both kinds of DESCRIBE stay, ALL becomes READ, other operations are dropped. A
DENY is carried unchanged. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from mirror.link.core.topic_naming import Naming, NamingPolicy
from wire.rules.acls import WILDCARD, Acl, Operation, PatternType, Permission, ResourcePattern

_AS_THEY_ARE = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})


def wanted_acls(
    source: Iterable[Acl],
    *,
    naming: Naming,
    carries: Callable[[str], bool],
    excluded_principals: Sequence[str] = (),
) -> frozenset[Acl]:
    """The ACLs that the target's topics should have, from the source's ACLs of topics; whole-name
    expressions exclude principals.
    """
    found: set[Acl] = set()
    for acl in source:
        if any(re.fullmatch(pattern, acl.entry.principal) for pattern in excluded_principals):
            continue
        pattern = _at_target(acl.pattern, naming, carries)
        operation = _operation(acl)
        if pattern is not None and operation is not None:
            found.add(Acl(pattern, acl.entry._replace(operation=operation)))
    return frozenset(found)


def _operation(acl: Acl) -> Operation | None:
    operation = acl.entry.operation
    if acl.entry.permission is not Permission.ALLOW or operation in _AS_THEY_ARE:
        return operation
    return Operation.READ if operation is Operation.ALL else None


def _at_target(pattern: ResourcePattern, naming: Naming, carries: Callable[[str], bool]) -> ResourcePattern | None:
    """The copies to which an ACL applies. If every copy has the source's alias as a prefix, a
    prefixed pattern stays a pattern; otherwise it could match topics of the target itself.
    """
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
        return pattern._replace(name=naming.target_name(pattern.name)) if carries(pattern.name) else None
    # Patterns of copies would come back with longer names each time, from one link to the other.
    if naming.policy is not NamingPolicy.PREFIX or naming.is_of_target(pattern.name):
        return None
    name = naming.target_name(pattern.name if pattern.pattern_type is PatternType.PREFIXED else "")
    return pattern._replace(name=name, pattern_type=PatternType.PREFIXED)


def changes(
    wanted: Collection[Acl], *, actual: Collection[Acl], wanted_before: Collection[Acl]
) -> tuple[frozenset[Acl], frozenset[Acl]]:
    """The ACLs to add and to remove: it removes only ACLs that the source had at the last look,
    never those that were made at the target.
    """
    return frozenset(wanted) - frozenset(actual), (frozenset(wanted_before) - frozenset(wanted)) & frozenset(actual)
