"""Where groups go whose committed offsets are beyond the end of a copy that is truncated.

Records of another history replace what the copy loses, at the same offsets. A group that stayed
beyond the new end would skip them when its members read at this site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from wire.protocol.ids import PartitionKey

Key = TypeVar("Key", bound=PartitionKey)


def offsets_beyond(offsets: Mapping[Key, int], ends: Mapping[Key, int]) -> dict[Key, int]:
    """The partitions of a group whose offset is beyond the new end, with that end: the group's new
    offset.
    """
    return {key: ends[key] for key, offset in offsets.items() if key in ends and offset > ends[key]}
