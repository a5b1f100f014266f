"""Many znodes read or watched by one request, which kazoo does not know: ZooKeeper's multiRead (3.6
and newer) and setWatches.

Each request costs kazoo's connection thread about 200 µs, so ten thousand single reads of partition
states would take seconds. The classes have the interface of kazoo's requests: `type`, `serialize`,
and `deserialize` for an answer at an offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.states import ZnodeStat

from runtime.zookeeper.nodes import NodeStat

_OPERATION = struct.Struct("!iBi")
_LENGTH = struct.Struct("!i")
_ZXID = struct.Struct("!q")
_STAT = struct.Struct("!qqqqiiiqiiq")
_GET_DATA, _ERROR = 4, -1
_END = _OPERATION.pack(-1, 1, -1)
_NOT_WATCHED = b"\0"


def node_stat(stat: ZnodeStat) -> NodeStat:
    """Kazoo's stat as that of this package."""
    return NodeStat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        created_at_ms=stat.ctime,
        ephemeral_owner=stat.ephemeralOwner,
        child_changes=stat.cversion,
        children_zxid=stat.pzxid,
    )


FoundNode = tuple[bytes, ZnodeStat] | None


class MultiRead:
    """Data and stat of each path in order, None for a missing node. Any other error of one path
    fails the whole request.
    """

    type: ClassVar[int] = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The request's body."""
        head = _OPERATION.pack(_GET_DATA, 0, -1)
        parts: list[bytes] = []
        for path in self._paths:
            encoded = path.encode()
            parts += (head, _LENGTH.pack(len(encoded)), encoded, _NOT_WATCHED)
        return b"".join((*parts, _END))

    def deserialize(self, answer: bytes, offset: int) -> list[FoundNode]:
        """The nodes in an answer."""
        found: list[FoundNode] = []
        while True:
            kind, is_end, _ = _OPERATION.unpack_from(answer, offset)
            offset += _OPERATION.size
            if is_end:
                return found
            (number,) = _LENGTH.unpack_from(answer, offset)
            offset += _LENGTH.size
            if kind == _ERROR:
                if number != NoNodeError.code:
                    failure: Exception = EXCEPTIONS[number]()
                    raise failure
                found.append(None)
                continue
            size = max(number, 0)  # -1: no data at all
            payload = bytes(answer[offset : offset + size])
            offset += size
            found.append((payload, ZnodeStat._make(_STAT.unpack_from(answer, offset))))
            offset += _STAT.size


class SetWatches:
    """Watches on nodes that were read before. The watch of a node of `found` fires when the node's
    last change is newer than `read_zxid`, at once if it is; that of a node of `missing` when the
    node exists. `register` is called in kazoo's connection thread before the request is sent.
    """

    type: ClassVar[int] = 101

    def __init__(
        self, *, found: Sequence[str], missing: Sequence[str], read_zxid: int, register: Callable[[], None]
    ) -> None:
        self._lists = found, missing, ()
        self._read_zxid = read_zxid
        self._register = register

    def serialize(self) -> bytes:
        """The request's body."""
        # The server sends the events of changed nodes before its answer. The thread that sends the
        # request also receives events, so no event arrives before the watches are registered.
        self._register()
        parts: list[bytes] = [_ZXID.pack(self._read_zxid)]
        for paths in self._lists:
            parts.append(_LENGTH.pack(len(paths)))
            for path in paths:
                encoded = path.encode()
                parts += (_LENGTH.pack(len(encoded)), encoded)
        return b"".join(parts)

    def deserialize(self, answer: bytes, offset: int) -> None:
        """The answer is empty."""
