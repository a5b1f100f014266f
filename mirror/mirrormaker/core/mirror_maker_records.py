"""Records of MirrorMaker 2's internal topics, byte for byte: heartbeats, checkpoints, offset syncs.

Layouts are those of Kafka's connect/mirror-client and connect/mirror (Heartbeat, Checkpoint,
OffsetSync): Kafka protocol types, big-endian, strings with an int16 length; the values of the first
two begin with an int16 version, which is 0. So RemoteClusterUtils, MirrorClient and the console
formatters read what this mirror writes.
"""

from __future__ import annotations

import struct

from msgspec import Struct

_VERSION = struct.Struct(">h")
_LENGTH = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A link lives. Unix ms."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.source_alias) + _text(self.target_alias)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _VERSION.pack(0) + _INT64.pack(self.timestamp_ms)


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A group's offset at the source, and the matching offset at the target. The topic is the
    target's.
    """

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.group) + _text(self.topic) + _INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        offsets = _TWO_INT64.pack(self.upstream_offset, self.downstream_offset)
        return _VERSION.pack(0) + offsets + _text(self.metadata)


class OffsetSync(Struct, frozen=True, kw_only=True):
    """A source offset of a partition and the offset of the same record at the target. The topic is
    the source's.
    """

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.topic) + _INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _TWO_INT64.pack(self.upstream_offset, self.downstream_offset)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded
