"""The keys of the access rules that both sites of an exact link have had, which the standby's
agents keep beside the link: the mirror removes a rule at the standby also if the active site
removed it while no mirror ran.
"""

from __future__ import annotations

from typing import Protocol

from mirror.link.link_watch import AgentsUnreachable
from wire.control.site_pb2 import GetSharedAccessReply, SharedAccess
from wire.protocol.ids import UNKNOWN
from wire.rules.access_digests import joined_keys, split_keys

KEYS_MAX = 90_000
"""The keys of one link's rules: they are stored as base64 in one znode of at most 1 MB."""


class TooManyRules(Exception):
    """There are more rules than one link can store keys of."""


class SharedAccessPort(Protocol):
    """The standby's agents. Both methods raise AgentsUnreachable."""

    async def shared_access(self, *, epoch: int) -> GetSharedAccessReply | None:
        """The rules of the latest epoch, from an agent that knows the link at `epoch`; None if the
        agents' release does not store such rules.
        """
        ...

    async def record_shared_access(self, shared: SharedAccess, *, version: int) -> int:
        """Store the rules in place of those of `version`; returns their version."""
        ...


class SharedAccessKeys:
    """The stored keys, as one round uses them."""

    def __init__(self, port: SharedAccessPort) -> None:
        self._port = port
        self._epoch = 0
        self._version = UNKNOWN
        self._keys: dict[str, frozenset[bytes]] = {}
        self._is_offered = True
        self._unread = "they have not been read yet"

    async def read(self, *, epoch: int) -> None:
        """Read what is stored for the link at `epoch`; without an answer no keys are known, and
        `keep` fails.
        """
        self._keys = {}
        try:
            reply = await self._port.shared_access(epoch=epoch)
        except AgentsUnreachable as error:
            self._unread = str(error)
            return
        self._unread, self._is_offered = "", reply is not None
        if reply is not None:
            self._epoch, self._version = reply.shared.epoch, reply.version
            self._keys = {part: split_keys(keys) for part, keys in reply.shared.by_part.items()}

    def of(self, part: str) -> frozenset[bytes]:
        """The stored keys of a part."""
        return self._keys.get(part, frozenset())

    async def keep(self, part: str, keys: frozenset[bytes], *, epoch: int) -> None:
        """Store the keys of a part at the link's epoch, if they are not stored yet. TooManyRules,
        AgentsUnreachable.
        """
        if self._unread:
            raise AgentsUnreachable(self._unread)
        if not self._is_offered or (self._epoch == epoch and self._keys.get(part) == keys):
            return
        kept = {**self._keys, part: keys}
        if (count := sum(map(len, kept.values()))) > KEYS_MAX:
            raise TooManyRules(f"there are {count} access rules, and a link stores the keys of at most {KEYS_MAX}")
        shared = SharedAccess(epoch=epoch, by_part={name: joined_keys(one) for name, one in kept.items()})
        self._version = await self._port.record_shared_access(shared, version=self._version)
        self._epoch, self._keys = epoch, kept
