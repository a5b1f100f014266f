"""The verdicts of Apache Kafka's StandardAuthorizer on ACLs and requests; `__main__.py` produces
them.

A case is a site's ACLs, its settings and one request; `judged.json` has each with the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

JUDGED: Final = Path(__file__).parent / "judged.json"
BY_TYPE: Final = "?"
"""In place of a resource's name: may the principal do it with any resource of the type?"""


class Case(NamedTuple):
    """`acls` as texts of `acl_text`; `name` is BY_TYPE for a question about a type."""

    acls: tuple[str, ...]
    principal: str
    host: str
    operation: str
    resource_type: str
    name: str
    super_users: str = ""
    allows_everyone_without_acl: bool = False

    @property
    def text(self) -> str:
        """For the name of a test."""
        extra = " everyone" if self.allows_everyone_without_acl else ""
        return f"{self.principal} {self.operation} {self.resource_type}:{self.name} by {'; '.join(self.acls)}{extra}"


def acl_text(acl: Acl) -> str:
    """One ACL as a line: permission, principal, host, operation, type, pattern, name."""
    entry, pattern = acl.entry, acl.pattern
    kind, names = pattern.resource_type.name, f"{pattern.pattern_type.name} {pattern.name}"
    return f"{entry.permission.name} {entry.principal} {entry.host} {entry.operation.name} {kind} {names}"


def acl_of(text: str) -> Acl:
    """The ACL of such a line."""
    permission, principal, host, operation, kind, pattern, name = text.split(" ")
    return Acl(
        ResourcePattern(ResourceType[kind], name, PatternType[pattern]),
        AccessEntry(principal, host, Operation[operation], Permission[permission]),
    )


def judged_cases() -> Iterator[tuple[Case, bool]]:
    """Each case with whether Kafka allowed it."""
    content: dict[str, Any] = json.loads(JUDGED.read_text(encoding="utf-8"))
    for fields in content["cases"]:
        allowed = fields.pop("allowed")
        yield Case(**{**fields, "acls": tuple(fields["acls"])}), allowed
