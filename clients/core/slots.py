"""A partition's slot among several workers, by a hash that never changes: CRC-32 of the name, not
Python's own, which differs from process to process. A worker that always has a partition keeps its
order. Pure.
"""

from __future__ import annotations

import zlib


def stable_slot(place: tuple[str, int], slots: int) -> int:
    """The slot of a topic's partition among `slots`: partitions of one topic follow each other
    round the slots.
    """
    topic, partition = place
    return (zlib.crc32(topic.encode()) + partition) % slots
