"""Values about znodes: what ZooKeeper reports of one, and the steps of a transaction."""

from __future__ import annotations

from msgspec import Struct


class NodeStat(Struct, frozen=True, kw_only=True):
    """The fields of a znode's stat that Antipode uses."""

    version: int
    czxid: int
    mzxid: int
    created_at_ms: int
    ephemeral_owner: int
    child_changes: int = 0
    """The number of children created or deleted."""
    children_zxid: int = 0
    """The zxid of the newest creation or deletion of a child."""


class CreateNode(Struct, frozen=True, kw_only=True):
    """One step of a transaction: a new znode."""

    path: str
    value: bytes = b""
    is_ephemeral: bool = False


class SetNode(Struct, frozen=True, kw_only=True):
    """One step of a transaction: new data; version -1 is unconditional."""

    path: str
    value: bytes
    version: int = -1


class DeleteNode(Struct, frozen=True, kw_only=True):
    """One step of a transaction: delete a znode without children; version -1 is unconditional."""

    path: str
    version: int = -1


class CheckNode(Struct, frozen=True, kw_only=True):
    """One step of a transaction: fail unless the znode has this version."""

    path: str
    version: int


TransactionStep = CreateNode | SetNode | DeleteNode | CheckNode
