"""ACLs in the site's ZooKeeper: read whole, written pattern by pattern. `cluster_reader.py` and
`cluster_writer.py` use it; the writer guards the writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kazoo.exceptions import NoNodeError

from controller.core.state import facts
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from runtime.zookeeper.nodes import CreateNode, DeleteNode, SetNode, TransactionStep
from wire.rules.acls import AccessEntry, PatternType, ResourcePattern, ResourceType
from wire.znodes.acl_znodes import (
    ACL_TYPES,
    DENY_ALL,
    PARENTS,
    acl_parent,
    acl_path,
    decode_acls,
    encode_acls,
    resource_name,
)
from wire.znodes.documents import MalformedZnode

PATTERNS_PER_READ_MAX: Final = 200
"""Patterns read by one request: each may have thousands of ACLs."""

_log = get_logger(__name__)


async def read_acls(zookeeper: ZooKeeper) -> dict[ResourcePattern, frozenset[AccessEntry]]:
    """All ACLs. If the node of a pattern cannot be decoded, access to the pattern is denied to
    everyone, with an error in the log: the node may have had a DENY.
    """
    patterns = [
        ResourcePattern(kind, resource_name(node), pattern_type)
        for pattern_type in PARENTS
        for kind in ACL_TYPES
        for node in await _nodes(zookeeper, pattern_type, kind)
    ]
    found: dict[ResourcePattern, frozenset[AccessEntry]] = {}
    for start in range(0, len(patterns), PATTERNS_PER_READ_MAX):
        found |= await _read(zookeeper, patterns[start : start + PATTERNS_PER_READ_MAX])
    return found


async def _nodes(zookeeper: ZooKeeper, pattern_type: PatternType, kind: ResourceType) -> list[str]:
    try:
        return await zookeeper.children(acl_parent(pattern_type, kind))
    except NoNodeError:
        return []


async def _read(
    zookeeper: ZooKeeper, patterns: Sequence[ResourcePattern]
) -> dict[ResourcePattern, frozenset[AccessEntry]]:
    stored = await zookeeper.get_many([acl_path(pattern) for pattern in patterns])
    return {
        pattern: entries
        for pattern, found in zip(patterns, stored, strict=True)
        if found is not None and (entries := _decoded(pattern, found[0]))
    }


def _decoded(pattern: ResourcePattern, payload: bytes) -> frozenset[AccessEntry]:
    try:
        return decode_acls(acl_path(pattern), payload)
    except MalformedZnode as error:
        _log.error("malformed ACLs count as a DENY for everyone", resource=str(pattern), problem=str(error))
        return frozenset({DENY_ALL})


async def acl_changes(zookeeper: ZooKeeper, parent: str, watch: Watch | None = None) -> list[str]:
    """Paths of the notices of changed ACLs below one of the two parents."""
    return [f"{parent}/{node}" for node in await zookeeper.children(parent, watch=watch)]


async def acl_steps(zookeeper: ZooKeeper, change: facts.AclsReplaced) -> list[TransactionStep]:
    """The steps of a multi that store the pattern's ACLs. They create the missing parent."""
    path, value = acl_path(change.pattern), encode_acls(change.entries)
    found = await zookeeper.get_or_none(path)
    if found is not None:
        version = found[1].version
        step = SetNode(path=path, value=value, version=version)
        return [step if change.entries else DeleteNode(path=path, version=version)]
    await zookeeper.ensure_path(path.rpartition("/")[0])
    return [CreateNode(path=path, value=value)] if change.entries else []
