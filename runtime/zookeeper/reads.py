"""Many znodes read by one request: ZooKeeper's multiRead (3.6 and newer), which kazoo does not
know.

Each request costs kazoo's connection thread about 200 µs, so ten thousand single reads of partition
states would take seconds. `MultiRead` has the interface of kazoo's requests: `type`, `serialize`,
and `deserialize` for an answer at an offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.states import ZnodeStat

_OPERATION = struct.Struct("!iBi")
_LENGTH = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_GET_DATA, _ERROR = 4, -1
_END = _OPERATION.pack(-1, 1, -1)
_NOT_WATCHED = b"\0"


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
