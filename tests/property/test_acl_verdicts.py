"""The table of ACLs against a naive twin that looks at every ACL each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.authorization.core.acl_table import AclTable, Requester
from wire.rules.acls import (
    WILDCARD,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)
from wire.rules.principals import Principal

_NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "*a"])
_PRINCIPALS = st.sampled_from(["alice", "bob", "*"])
_HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
_KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
_OPERATIONS = st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS])
_ACLS = st.lists(
    st.builds(
        lambda kind, name, pattern, entry: Acl(ResourcePattern(kind, name, pattern), entry),
        _KINDS,
        _NAMES,
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.builds(
            lambda user, host, operation, permission: AccessEntry(f"User:{user}", host, operation, permission),
            _PRINCIPALS,
            st.one_of(st.just(WILDCARD), _HOSTS),
            st.one_of(st.just(Operation.ALL), _OPERATIONS),
            st.sampled_from([Permission.ALLOW, Permission.DENY]),
        ),
    ),
    max_size=12,
)
_REQUESTERS = st.builds(lambda user, host: Requester(Principal("User", user), host), _PRINCIPALS, _HOSTS)
_IMPLYING = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def stored(acls: list[Acl]) -> ResourceAcls:
    found: dict[ResourcePattern, frozenset[AccessEntry]] = {}
    for acl in acls:
        found[acl.pattern] = found.get(acl.pattern, frozenset()) | {acl.entry}
    return found


def naive(acls: list[Acl], requester: Requester, operation: Operation, kind: ResourceType, name: str) -> bool | None:
    """True and False as the table's verdict, None when no ACL concerns the resource."""
    concerning = [acl for acl in acls if acl.pattern.resource_type is kind and names(acl.pattern, name)]
    matching = [acl.entry for acl in concerning if is_for(acl.entry, requester, operation)]
    if any(entry.permission is Permission.DENY for entry in matching):
        return False
    return True if matching else (False if concerning else None)


def names(pattern: ResourcePattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def is_for(entry: AccessEntry, requester: Requester, operation: Operation) -> bool:
    if entry.principal not in (str(requester.principal), "User:*") or entry.host not in (requester.host, WILDCARD):
        return False
    if entry.operation in (operation, Operation.ALL):
        return True
    return entry.permission is Permission.ALLOW and operation is Operation.DESCRIBE and entry.operation in _IMPLYING


@given(_ACLS, _ACLS, _REQUESTERS, _OPERATIONS, _KINDS, _NAMES)
def test_verdicts_are_those_of_a_look_at_every_acl_also_after_a_change(
    former: list[Acl], acls: list[Acl], requester: Requester, operation: Operation, kind: ResourceType, name: str
) -> None:
    found = stored(acls)
    before = stored(former)
    shared = {
        pattern: before[pattern] if before.get(pattern) == entries else entries for pattern, entries in found.items()
    }
    for table in (AclTable(found), AclTable(before).following(shared)):
        verdict = table.verdict(requester, operation, kind, name)
        assert (None if verdict is None else verdict.is_allowed) is naive(acls, requester, operation, kind, name)
        is_allowed_somewhere = any(
            naive(acls, requester, operation, kind, tried)
            for tried in ("a", "ab", "abc", "abcd", "b", "bb", "*a", "*ab", "other")
        )
        if is_allowed_somewhere and operation is not Operation.DESCRIBE:  # Kafka asks by type of no implied operation
            assert table.allows_by_type(requester, operation, kind)
