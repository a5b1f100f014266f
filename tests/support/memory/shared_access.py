"""A standby's agents that keep the access rules that both sites have had."""

from __future__ import annotations

from mirror.link.link_watch import AgentsUnreachable
from wire.control.site_pb2 import GetSharedAccessReply, SharedAccess
from wire.protocol.ids import UNKNOWN


class MemorySharedAccess:
    """SharedAccessPort in memory; with a `problem` the agents do not answer."""

    def __init__(self, *, is_offered: bool = True) -> None:
        self.shared = SharedAccess()
        self.version = UNKNOWN
        self.problem = ""
        self.asked_epochs: list[int] = []
        self._is_offered = is_offered

    async def shared_access(self, *, epoch: int) -> GetSharedAccessReply | None:
        """What is stored."""
        self._check()
        self.asked_epochs.append(epoch)
        return GetSharedAccessReply(shared=self.shared, version=self.version) if self._is_offered else None

    async def record_shared_access(self, shared: SharedAccess, *, version: int) -> int:
        """Stores it in place of the version."""
        self._check()
        if version != self.version:
            raise AgentsUnreachable(f"version {self.version} is stored, not {version}")
        self.shared, self.version = SharedAccess.FromString(shared.SerializeToString()), version + 1
        return self.version

    def _check(self) -> None:
        if self.problem:
            raise AgentsUnreachable(self.problem)
