"""Decides whether a log still has the history of its archive. Pure.

A failover may have lost records that are archived. The new log can be longer than the archive, so
that only the end of the last archived leader epoch shows that the two histories part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark_jobs.archiving.core.manifest import LogId, Manifest, by_log
from wire.protocol.ids import PartitionKey


class Tail(NamedTuple):
    """The end of a log's last archived range: the leader epoch of its last batch, and the offset
    behind that batch.
    """

    topic: str
    partition: int
    leader_epoch: int
    end_offset: int

    @property
    def key(self) -> PartitionKey:
        """Its partition by the topic's name."""
        return self.topic, self.partition


def tails(manifests: Sequence[Manifest]) -> dict[LogId, Tail]:
    """The tail of each log that has archived ranges."""
    return {
        log: Tail(last.topic, last.partition, last.leader_epochs[-1][0], last.end_offset)
        for log, ranges in by_log(manifests).items()
        if (last := ranges[-1]).leader_epochs
    }


def other_histories(
    archived: Mapping[LogId, Tail], epoch_ends: Mapping[PartitionKey, tuple[int, int]]
) -> dict[LogId, str]:
    """A sentence about each log that lacks archived offsets. `epoch_ends` are, by partition, the
    largest leader epoch of the log that is not above the tail's, and its end offset; (-1, -1)
    without one, and then only the end of the log can show that offsets are lost.
    """
    found = {}
    for log, tail in archived.items():
        epoch, end = epoch_ends.get(tail.key, (-1, -1))
        if epoch >= 0 and end < tail.end_offset:
            found[log] = (
                f"{tail.topic}-{tail.partition}: the archive has offsets {end} to {tail.end_offset - 1} up to leader "
                f"epoch {tail.leader_epoch}, and the log has another history from offset {end} on: a failover has "
                "lost them. The archive keeps them and takes nothing more of this partition: archive its topic to "
                "another directory, too"
            )
    return found
