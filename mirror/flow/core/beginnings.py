"""Chooses the offset at which a topic's copy begins. The link promises every record after that
offset; it never promised records that the source deleted before the copy existed.

The beginning is a config of the copy (`antipode.copy.begins`), because a config is created
atomically with the topic and survives daemons, leaders and logs of the target: an empty log there
does not show whether a mirror has ever read the source. Partitions without an entry begin at offset
0, so that most topics need no config; a partition whose beginning the source did not report when
the copy was made is UNKNOWN, and begins where the source's log first starts for the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping

from wire.protocol.ids import UNKNOWN


def written(starts: Mapping[int, int]) -> str:
    """The config's value for the source's log starts by partition; empty when every partition
    begins at 0.
    """
    return ",".join(f"{partition}:{start}" for partition, start in sorted(starts.items()) if start)


def read(text: str) -> dict[int, int]:
    """Partitions that do not begin at 0; entries that do not have the config's format are
    ignored.
    """
    parts = [part.partition(":") for part in text.split(",")]
    return {
        int(partition): int(start)
        for partition, _, start in parts
        if partition.isdecimal() and (start.isdecimal() or start == str(UNKNOWN))
    }
