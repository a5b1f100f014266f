"""Finds the position at which a stream continues, from its checkpoint and the log that the cluster
has now. Pure.

A failover may have lost records that the query has already read. Then the log diverges from the
history of the checkpoint below the checkpoint's offset (KIP-320). The query continues at that
offset, or stops with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.connector.core.offsets import PartitionOffsets
from wire.protocol.ids import PartitionKey


class RecordsLost(ValueError):
    """The query has read records that the log does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Offsets that were read and are not in the log: from `first_offset` up to `until_offset`, not
    included.
    """

    topic: str
    partition: int
    first_offset: int
    until_offset: int
    leader_epoch: int | None

    def __str__(self) -> str:
        epoch = "" if self.leader_epoch is None else f" under leader epoch {self.leader_epoch}"
        return (
            f"{self.topic}-{self.partition}: the query has read up to offset {self.until_offset}{epoch}, and this "
            f"log has another history from offset {self.first_offset} on: offsets {self.first_offset} to "
            f"{self.until_offset - 1} as the query read them are lost"
        )


def lost_records(
    offsets: Mapping[PartitionKey, int],
    epochs: Mapping[PartitionKey, int],
    epoch_ends: Mapping[PartitionKey, tuple[int, int]],
    log_ends: Mapping[PartitionKey, int],
) -> list[LostRecords]:
    """The records that each position has read and its log lacks. `epoch_ends` are, by partition,
    the largest epoch of the log that is not above the position's, and its end offset (-1, -1:
    none).

    A new leader may report an end that is too low for a moment; its epochs are right from the
    start. So the log's end decides only where no epoch is known, as for a checkpoint of the Kafka
    connector.
    """
    found = []
    for key, offset in sorted(offsets.items()):
        epoch, end = epoch_ends.get(key, (-1, -1))
        if epoch < 0:
            end = log_ends.get(key, offset)
        if end < offset:
            found.append(
                LostRecords(
                    topic=key[0],
                    partition=key[1],
                    first_offset=end,
                    until_offset=offset,
                    leader_epoch=epochs.get(key),
                )
            )
    return found


def check_lost(lost: list[LostRecords], *, is_failing_on_loss: bool) -> PartitionOffsets:
    """The offsets at which the read of partitions with lost records continues. Raises RecordsLost
    unless the query is to continue without those records.
    """
    if lost and is_failing_on_loss:
        raise RecordsLost(
            "; ".join(map(str, lost)) + ". The account of loss of the failover names the same offsets. Accepted: "
            "failOnDataLoss=false, with which the query continues at that offset"
        )
    return {(one.topic, one.partition): one.first_offset for one in lost}


def known_epochs(
    ends: Mapping[PartitionKey, int],
    offsets: Mapping[PartitionKey, int],
    epochs: Mapping[PartitionKey, int],
    epoch_ends: Mapping[PartitionKey, tuple[int, int]],
) -> PartitionOffsets:
    """The leader epochs of the last records below `ends`, where the position's own epoch settles
    them: its epoch reaches so far, or nothing was read.
    """
    found = {}
    for key, end in ends.items():
        if key not in epochs or end < offsets.get(key, end):
            continue
        epoch, until = epoch_ends.get(key, (-1, -1))
        if end == offsets.get(key) or (epoch == epochs[key] and until >= end):
            found[key] = epochs[key]
    return found
