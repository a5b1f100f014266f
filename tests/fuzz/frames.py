"""The bytes of a connection, received in pieces: frames are exactly those that the sizes name, and
a refusal ends the connection once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from wire.protocol.streams.frame_stream import FrameStream

FRAME_BYTES_MAX: Final = 1 << 20


class _Aborted:
    """A transport that can only be ended."""

    def __init__(self) -> None:
        self.count = 0

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def abort(self) -> None:
        """The stream ends the connection."""
        self.count += 1


def run(data: bytes) -> None:
    """The first byte says how large the pieces are."""
    if not data:
        return
    piece_bytes, content = data[0] * 64 + 1, data[1:]
    received: list[bytes] = []
    lost: list[str] = []
    transport = _Aborted()
    stream = FrameStream(
        frame_bytes_max=FRAME_BYTES_MAX, on_frame=lambda frame: received.append(bytes(frame)), on_lost=lost.append
    )
    stream.connection_made(transport)  # type: ignore[arg-type]
    for at in range(0, len(content), piece_bytes):
        if transport.count:
            break
        stream.feed(content[at : at + piece_bytes])
    expected, is_refused = _frames(content)
    assert received == expected
    assert transport.count == len(lost) == int(is_refused)


def _frames(content: bytes) -> tuple[list[bytes], bool]:
    found, at = [], 0
    while len(content) - at >= 4:
        (size,) = struct.unpack_from(">i", content, at)
        if not 0 <= size <= FRAME_BYTES_MAX:
            return found, True
        if at + 4 + size > len(content):
            break
        found.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return found, False


def seeds() -> Sequence[bytes]:
    """Small and large frames, whole and begun, in small and large pieces."""
    small = struct.pack(">i", 5) + b"hello"
    large = struct.pack(">i", 20_000) + bytes(20_000)
    return [
        bytes((pieces,)) + content
        for pieces in (0, 1, 255)
        for content in (
            small * 3,
            small + large[: 4 + 20_000 * (pieces > 0)] + small,
            struct.pack(">i", 0) + small,
            struct.pack(">i", 1 << 19),
        )
    ]
