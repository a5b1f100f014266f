"""Assigns partitions to workers by CRC-32 of the topic's name. Python's own hash would differ from
process to process. A partition always has the same worker, which keeps its order. Pure.
"""

from __future__ import annotations

import zlib


def stable_slot(place: tuple[str, int], slots: int) -> int:
    """The slot of a topic's partition among `slots`: partitions of one topic follow each other
    round the slots.
    """
    topic, partition = place
    return (zlib.crc32(topic.encode()) + partition) % slots
