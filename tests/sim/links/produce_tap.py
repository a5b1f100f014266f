"""Tells the ledger of each answer to a Produce request at the moment when it leaves a broker."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from wire.protocol.messages import produce_codec

FLEXIBLE_VERSION = 9
"""From this version on the header of an answer has tagged fields."""
OnProduced = Callable[[produce_codec.ProduceResponse], object]


class ProduceTap:
    """The requests and answers of one connection (`tests/sim/sockets.py: Tap`)."""

    def __init__(self, on_produced: OnProduced) -> None:
        self._on_produced = on_produced
        self._requests, self._answers = bytearray(), bytearray()
        self._versions: dict[int, int] = {}
        """Of the Produce requests without an answer, by correlation id."""

    def received(self, data: bytes) -> None:
        self._requests += data
        for frame in _frames(self._requests):
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if api_key == produce_codec.API_KEY:
                self._versions[correlation_id] = version

    def sent(self, data: bytes) -> None:
        self._answers += data
        for frame in _frames(self._answers):
            version = self._versions.pop(struct.unpack_from(">i", frame, 4)[0], None)
            if version is not None:
                header_bytes = 8 + (version >= FLEXIBLE_VERSION)
                self._on_produced(produce_codec.parse_produce_response(frame, header_bytes, version))


def _frames(held: bytearray) -> Iterator[bytes]:
    """Take whole frames, with their size, off the beginning."""
    while len(held) >= 4:
        end = 4 + struct.unpack_from(">i", held)[0]
        if len(held) < end:
            return
        frame = bytes(held[:end])
        del held[:end]
        yield frame
