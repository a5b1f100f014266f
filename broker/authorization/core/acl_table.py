"""Verdicts about requests by a site's ACLs, as Apache Kafka's StandardAuthorizer gives them.
Pure.

A principal may do an operation on a resource if it is a super user, or if no DENY matches and some
ALLOW does. ACLs for the resource's own name, for prefixes of it and for `*` have equal weight. In
an ALLOW, READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS;
a DENY covers only its own operation. If no ACL of any principal covers the resource,
`allow.everyone.if.no.acl.found` decides. Source: KIP-11, KIP-290, KIP-679; `tests/golden/acls`
holds Kafka's own verdicts.

A verdict costs one look-up for the name, one for `*` and one for each length of the type's
prefixes. The number of ACLs does not matter, because entries are stored by resource and principal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from wire.rules.acls import (
    WILDCARD,
    AccessEntry,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)
from wire.rules.principals import WILDCARD_PRINCIPAL, Principal

_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
_HARD_CODED_NAME: Final = "hardcode"
"""The resource name with which Kafka checks whether a principal is a super user, in checks by
type.
"""


class Verdict(NamedTuple):
    """A decision to allow or deny, and the rule that decided, as the audit log names it."""

    is_allowed: bool
    rule: str


SUPER_USER: Final = Verdict(True, "SuperUser")
NOT_LOADED: Final = Verdict(False, "AclsNotLoaded")
NO_ACL_ALLOWS: Final = Verdict(False, "DefaultDeny")
NO_ACL_CONCERNS: Final = Verdict(True, "AllowEveryoneIfNoAclFound")


class Requester(NamedTuple):
    """The principal of a request, and its address."""

    principal: Principal
    host: str


class _Entries(NamedTuple):
    """The entries of one pattern, also by principal."""

    stored: frozenset[AccessEntry]
    by_principal: Mapping[str, tuple[AccessEntry, ...]]


class AclTable:
    """All ACLs of a site, ready for verdicts. Immutable: `following` makes the next one."""

    def __init__(self, acls: ResourceAcls, former: AclTable | None = None) -> None:
        known = {} if former is None else former._entries
        self.acls = acls
        self._entries: dict[ResourcePattern, _Entries] = {}
        lengths: dict[ResourceType, set[int]] = {}
        for pattern, entries in acls.items():
            found = known.get(pattern)
            self._entries[pattern] = found if found is not None and found.stored is entries else _indexed(entries)
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.resource_type, set()).add(len(pattern.name))
        self._prefix_lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def following(self, acls: ResourceAcls) -> AclTable:
        """The table of other ACLs; patterns whose entries are the same object are not processed
        again.
        """
        return self if acls is self.acls else AclTable(acls, self)

    def _concerning(self, resource_type: ResourceType, name: str) -> Iterator[tuple[ResourcePattern, _Entries]]:
        patterns = [ResourcePattern(resource_type, name, PatternType.LITERAL)]
        if name != WILDCARD:
            patterns.append(ResourcePattern(resource_type, WILDCARD, PatternType.LITERAL))
        patterns += [
            ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)
            for length in self._prefix_lengths.get(resource_type, ())
            if length <= len(name)
        ]
        for pattern in patterns:
            found = self._entries.get(pattern)
            if found is not None:
                yield pattern, found

    def verdict(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> Verdict | None:
        """The verdict of the ACLs; None if no ACL of any principal concerns the resource."""
        principals = (str(requester.principal), str(WILDCARD_PRINCIPAL))
        hosts = (requester.host, WILDCARD)
        allowing = _IMPLIED_BY.get(operation, (operation, Operation.ALL))
        is_concerned, allowed = False, None
        for pattern, entries in self._concerning(resource_type, name):
            is_concerned = True
            for principal in principals:
                for entry in entries.by_principal.get(principal, ()):
                    if entry.host not in hosts:
                        continue
                    if entry.permission is Permission.DENY:
                        if entry.operation in (operation, Operation.ALL):
                            return Verdict(False, _rule(pattern, entry))
                    elif allowed is None and entry.operation in allowing:
                        allowed = Verdict(True, _rule(pattern, entry))
        if allowed is not None:
            return allowed
        return NO_ACL_ALLOWS if is_concerned else None

    def allows_by_type(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """True if the principal may do it with at least one resource of the type, under any name
        (KIP-679).
        """
        principals = (str(requester.principal), str(WILDCARD_PRINCIPAL))
        denied: set[tuple[PatternType, str]] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for pattern, entries in self._entries.items():
            if pattern.resource_type is not resource_type:
                continue
            for permission in _permissions(entries, principals, (requester.host, WILDCARD), operation):
                (denied if permission is Permission.DENY else allowed).add((pattern.pattern_type, pattern.name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        prefixes = {name for kind, name in denied if kind is PatternType.PREFIXED}
        return any(
            not (kind is PatternType.LITERAL and (kind, name) in denied)
            and not any(name[:length] in prefixes for length in range(1, len(name) + 1))
            for kind, name in allowed
        )


class AclRules:
    """A table with the configured rules: super users, and the verdict if no ACL covers a
    resource.
    """

    def __init__(
        self, table: AclTable, *, super_users: Iterable[str], allows_everyone_without_acl: bool, is_loaded: bool = True
    ) -> None:
        self.table = table
        self._super_users = frozenset(super_users)
        self._default = NO_ACL_CONCERNS if allows_everyone_without_acl else NO_ACL_ALLOWS
        self._is_loaded = is_loaded

    def verdict(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        """The verdict for the requester and the resource of that literal name."""
        if str(requester.principal) in self._super_users:
            return SUPER_USER
        if not self._is_loaded:
            return NOT_LOADED
        return self.table.verdict(requester, operation, resource_type, name) or self._default

    def verdict_by_type(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> Verdict:
        """The verdict for the requester and any resource of the type."""
        verdict = self.verdict(requester, operation, resource_type, _HARD_CODED_NAME)
        if verdict.is_allowed or not self._is_loaded:
            return verdict
        if self.table.allows_by_type(requester, operation, resource_type):
            return Verdict(True, "AnyResourceOfTheType")
        return NO_ACL_ALLOWS


def _indexed(entries: frozenset[AccessEntry]) -> _Entries:
    by_principal: dict[str, list[AccessEntry]] = {}
    for entry in sorted(entries):
        by_principal.setdefault(entry.principal, []).append(entry)
    return _Entries(entries, {principal: tuple(found) for principal, found in by_principal.items()})


def _permissions(
    entries: _Entries, principals: Iterable[str], hosts: tuple[str, str], operation: Operation
) -> Iterator[Permission]:
    for principal in principals:
        for entry in entries.by_principal.get(principal, ()):
            if entry.host in hosts and entry.operation in (operation, Operation.ALL):
                yield entry.permission


def _rule(pattern: ResourcePattern, entry: AccessEntry) -> str:
    return f"{entry.permission.name} {entry.principal} {entry.operation.name} on {pattern} from host {entry.host}"
