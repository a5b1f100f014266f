"""The znodes of one ZooKeeper server, and how one step of a transaction changes them.

Caller: tests/sim/zookeeper_ensemble.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError, NotEmptyError

from runtime.zookeeper.nodes import CreateNode, DeleteNode, NodeStat, SetNode, TransactionStep


@dataclass(slots=True)
class Node:
    """One znode."""

    value: bytes
    czxid: int
    mzxid: int
    created_at_ms: int
    version: int = 0
    owner: int = 0
    children: set[str] = field(default_factory=set)
    child_changes: int = 0
    children_zxid: int = 0

    def stat(self) -> NodeStat:
        """The interface for clients."""
        return NodeStat(
            version=self.version,
            czxid=self.czxid,
            mzxid=self.mzxid,
            created_at_ms=self.created_at_ms,
            ephemeral_owner=self.owner,
            child_changes=self.child_changes,
            children_zxid=self.children_zxid,
        )


class Tree:
    """The znodes as of one zxid."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self.zxid = 0

    def check(self, step: TransactionStep) -> KazooException | None:
        """The reason why the step fails; None when it succeeds."""
        node = self.nodes.get(step.path)
        if isinstance(step, CreateNode):
            if node is not None:
                return NodeExistsError()
            return None if parent_of(step.path) in self.nodes else NoNodeError()
        if node is None:
            return NoNodeError()
        if step.version not in (-1, node.version):
            return BadVersionError()
        return NotEmptyError() if isinstance(step, DeleteNode) and node.children else None

    def apply(self, step: TransactionStep, *, zxid: int, session: int, now_ms: int) -> list[tuple[str, str]]:
        """Make a step that was checked. Returns the watches that it fires, as (kind, path)."""
        path = step.path
        match step:
            case CreateNode():
                self.nodes[path] = Node(step.value, zxid, zxid, now_ms, owner=session if step.is_ephemeral else 0)
                parent = self.nodes[parent_of(path)]
                parent.children.add(path.rpartition("/")[2])
                parent.child_changes, parent.children_zxid = parent.child_changes + 1, zxid
                return [("data", path), ("children", parent_of(path))]
            case SetNode():
                node = self.nodes[path]
                node.value, node.mzxid, node.version = step.value, zxid, node.version + 1
                return [("data", path)]
            case DeleteNode():
                del self.nodes[path]
                parent = self.nodes[parent_of(path)]
                parent.children.discard(path.rpartition("/")[2])
                parent.child_changes, parent.children_zxid = parent.child_changes + 1, zxid
                return [("data", path), ("children", path), ("children", parent_of(path))]
        return []


def parent_of(path: str) -> str:
    """The path of the parent."""
    return path.rpartition("/")[0] or "/"
