"""Do mirrored batches continue a log, repeat what it has, leave a gap, or contradict it? Pure; on
batch headers alone.

The target's log is the mirror's checkpoint, so whatever a mirror sends again after a crash must be
recognised: batches that lie below the log end are held against those in the log by offsets, leader
epoch and CRC. `replicas.py` brings the headers and appends what is new.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from wire.batches.record_batch import BatchHeader


class Continuity(enum.Enum):
    """How batches meet a log."""

    CONTINUES = "continues"
    GAP = "gap"
    TRUNCATED_THROUGH = "starts within a batch"
    DIVERGES = "diverges"


class Meeting(NamedTuple):
    """The verdict, and how many of the batches (from the first) the log has already."""

    continuity: Continuity
    repeated_count: int = 0


def meet(
    batches: Sequence[BatchHeader], *, expected_log_end_offset: int, log_end_offset: int, latest_epoch: int
) -> Meeting:
    """How the batches meet a log that ends at `log_end_offset`; repeated ones are still to be
    compared.
    """
    if expected_log_end_offset > log_end_offset:
        return Meeting(Continuity.GAP)
    repeated_count = 0
    for batch in batches:
        if batch.base_offset >= log_end_offset:
            break
        if batch.next_offset > log_end_offset:
            return Meeting(Continuity.TRUNCATED_THROUGH)
        repeated_count += 1
    new = batches[repeated_count:]
    if new and 0 <= new[0].partition_leader_epoch < latest_epoch:
        return Meeting(Continuity.DIVERGES, repeated_count)
    return Meeting(Continuity.CONTINUES, repeated_count)


def is_same_history(
    sent: Sequence[BatchHeader], stored: Sequence[BatchHeader], *, log_start_offset: int, is_compacted: bool
) -> bool:
    """True when the stored batches are those that were sent again.

    Batches below the log start are gone and cannot be held against anything. Compaction rewrites
    batches, so a compacted topic is compared where offsets still meet, by leader epoch only.
    """
    by_offset = {batch.base_offset: batch for batch in stored}
    for batch in sent:
        if batch.base_offset < log_start_offset:
            continue
        found = by_offset.get(batch.base_offset)
        if found is None:
            if not is_compacted:
                return False
            continue
        if found.partition_leader_epoch != batch.partition_leader_epoch:
            return False
        if not is_compacted and (found.last_offset != batch.last_offset or found.crc != batch.crc):
            return False
    return True
