"""ACLs of a site: where ZooKeeper keeps them, and their messages inside the site.

Paths and JSON are those of Kafka's classic authorizer: `/kafka-acl/<type>/<name>` for literal
names, `/kafka-acl-extended/prefixed/<type>/<name>` for prefixes, and notices of change below
`/kafka-acl-changes` and `/kafka-acl-extended-changes` that other tools leave. Characters that a
node's name cannot have are escaped with `%`. Source: KIP-11, KIP-290, `kafka.zk.ZkData`.

Callers: the controller (storage, image), the broker's image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from wire.control.cluster_pb2 import AccessEntry as AccessEntryMessage
from wire.control.cluster_pb2 import AclFilter as AclFilterMessage
from wire.control.cluster_pb2 import ResourceAcls as ResourceAclsMessage
from wire.protocol.json_documents import parse_json
from wire.rules.acls import (
    WILDCARD,
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
    camel_case,
)
from wire.rules.principals import WILDCARD_PRINCIPAL
from wire.znodes.documents import MalformedZnode

ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_PATHS: Final = (ACLS, EXTENDED_ACLS, PREFIXED_ACLS, ACL_CHANGES, EXTENDED_ACL_CHANGES)
"""Parents that must exist, in order of creation."""

ACL_TYPES: Final = tuple(kind for kind in ResourceType if kind is not ResourceType.ANY)
PARENTS: Final[Mapping[PatternType, str]] = {PatternType.LITERAL: ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
DENY_ALL: Final = AccessEntry(str(WILDCARD_PRINCIPAL), WILDCARD, Operation.ALL, Permission.DENY)
"""The entry for a pattern whose node cannot be decoded: it may have held a DENY."""

_OPERATIONS: Final = {camel_case(operation): operation for operation in Operation if operation is not Operation.ANY}
_PERMISSIONS: Final = {camel_case(one): one for one in (Permission.ALLOW, Permission.DENY)}
_ESCAPE: Final = re.compile("(?:%[0-9A-F]{2})+")
_ESCAPED: Final = re.compile("[/%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""What a node's name cannot have: ZooKeeper refuses surrogates, of which Java makes the characters
above U+FFFF.
"""


def acl_parent(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """Parent of the nodes of one type of resource."""
    return f"{PARENTS[pattern_type]}/{camel_case(resource_type)}"


def acl_path(pattern: ResourcePattern) -> str:
    """The node with all ACLs of one pattern."""
    return f"{acl_parent(pattern.pattern_type, pattern.resource_type)}/{_node(pattern.name)}"


def _node(name: str) -> str:
    if not name.strip("."):
        return name.replace(".", "%2E")  # "." and ".." would lead elsewhere
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def resource_name(node: str) -> str:
    """The resource's name behind a node."""
    return _ESCAPE.sub(_unescaped, node)


def _unescaped(found: re.Match[str]) -> str:
    try:
        return bytes.fromhex(found[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return found[0]  # Kafka escapes nothing


def encode_acls(entries: Iterable[AccessEntry]) -> bytes:
    """The content of a pattern's node, version 1."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": camel_case(entry.permission),
            "operation": camel_case(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acls(path: str, payload: bytes) -> frozenset[AccessEntry]:
    """The entries in a pattern's node. MalformedZnode names what is wrong."""
    try:
        document = parse_json(payload)
        return frozenset(_entry(acl) for acl in document["acls"])
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedZnode(path, f"not a list of ACLs: {error!r}") from error


def _entry(acl: Any) -> AccessEntry:
    principal, host = acl["principal"], acl.get("host", WILDCARD)
    if not isinstance(principal, str) or not isinstance(host, str):
        raise TypeError("principal and host are texts")
    return AccessEntry(principal, host, _OPERATIONS[acl["operation"]], _PERMISSIONS[acl["permissionType"]])


def acls_message(pattern: ResourcePattern, entries: Iterable[AccessEntry]) -> ResourceAclsMessage:
    """Build the message for an image, a change of it or a request; without entries the pattern has
    none left.
    """
    return ResourceAclsMessage(
        resource_type=pattern.resource_type,
        name=pattern.name,
        pattern_type=pattern.pattern_type,
        entries=[
            AccessEntryMessage(
                principal=entry.principal, host=entry.host, operation=entry.operation, permission=entry.permission
            )
            for entry in sorted(entries)
        ],
    )


def creation_from_message(message: ResourceAclsMessage) -> Acl:
    """The one ACL of a request's message. ValueError for numbers that are none of the protocol."""
    pattern, (entry,) = acls_from_message(message)
    return Acl(pattern, entry)


def filter_message(wanted: AclFilter) -> AclFilterMessage:
    """A filter in the form in which processes of a site send it to each other."""
    return AclFilterMessage(
        resource_type=wanted.resource_type,
        name=wanted.name,
        pattern_type=wanted.pattern_type,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission=wanted.permission,
    )


def filter_from_message(message: AclFilterMessage) -> AclFilter:
    """Decode the filter of a message inside a site. ValueError as above."""
    return AclFilter(
        resource_type=ResourceType(message.resource_type),
        name=message.name if message.HasField("name") else None,
        pattern_type=PatternType(message.pattern_type),
        principal=message.principal if message.HasField("principal") else None,
        host=message.host if message.HasField("host") else None,
        operation=Operation(message.operation),
        permission=Permission(message.permission),
    )


def acls_from_message(message: ResourceAclsMessage) -> tuple[ResourcePattern, frozenset[AccessEntry]]:
    """Decode the ACLs of a message inside a site. ValueError for numbers that the protocol does not
    define.
    """
    pattern = ResourcePattern(ResourceType(message.resource_type), message.name, PatternType(message.pattern_type))
    return pattern, frozenset(
        AccessEntry(entry.principal, entry.host, Operation(entry.operation), Permission(entry.permission))
        for entry in message.entries
    )


def merged_acls(former: ResourceAcls, changed: Collection[ResourceAclsMessage], *, is_full: bool) -> ResourceAcls:
    """All ACLs after a change, or as a full image names them. Patterns whose ACLs did not change
    keep their objects, so that a table of them need not be made anew.
    """
    if not is_full and not changed:
        return former
    acls = {} if is_full else dict(former)
    for message in changed:
        pattern, entries = acls_from_message(message)
        acls.pop(pattern, None)
        if entries:
            known = former.get(pattern)
            acls[pattern] = known if known is not None and known == entries else entries
    return former if former == acls else acls
