"""Decides whether mirrored batches continue a log, repeat its batches, leave a gap, or contradict
it. Pure; on batch headers alone.

The target's log is the mirror's checkpoint, so batches that a mirror sends again after a crash must
be recognised: batches below the log end are compared with the stored ones by offsets, leader epoch
and CRC. `replicas.py` provides the headers and appends the new batches.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from wire.batches.record_batch import BatchHeader


class Continuity(enum.Enum):
    """The relation of batches to the end of a log."""

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
    """The relation of the batches to a log that ends at `log_end_offset`. The caller must still
    compare repeated batches.

    A copy has whole batches. A batch that extends past an end that the mirror knows therefore
    belongs to another history; past an end that it does not know, this proves nothing.
    """
    if expected_log_end_offset > log_end_offset:
        return Meeting(Continuity.GAP)
    repeated_count = 0
    for batch in batches:
        if batch.base_offset >= log_end_offset:
            break
        if batch.next_offset > log_end_offset:
            is_end_known = expected_log_end_offset == log_end_offset
            return Meeting(Continuity.DIVERGES if is_end_known else Continuity.TRUNCATED_THROUGH, repeated_count)
        repeated_count += 1
    new = batches[repeated_count:]
    # -1 is a batch from before leader epochs (KIP-101): it proves nothing about the history
    if new and 0 <= new[0].partition_leader_epoch < latest_epoch:
        return Meeting(Continuity.DIVERGES, repeated_count)
    return Meeting(Continuity.CONTINUES, repeated_count)


def first_difference(
    sent: Sequence[BatchHeader], stored: Sequence[BatchHeader], *, log_start_offset: int, is_compacted: bool
) -> BatchHeader | None:
    """The first repeated batch that differs from the stored one; None if the log has them all.

    Batches below the log start are gone and cannot be compared. A compacted topic may have dropped
    a batch. A batch that compaction has rewritten at either site keeps its offsets and its leader
    epoch; every other batch keeps its checksum too.
    """
    by_offset = {batch.base_offset: batch for batch in stored}
    for batch in sent:
        if batch.base_offset < log_start_offset:
            continue
        found = by_offset.get(batch.base_offset)
        if found is None:
            # one site's cleaner may have removed it; keys decide, not offsets
            if is_compacted:
                continue
            return batch
        is_rewritten = _is_rewritten(batch) or _is_rewritten(found)
        is_same_place = (found.partition_leader_epoch, found.last_offset) == (
            batch.partition_leader_epoch,
            batch.last_offset,
        )
        if not is_same_place or (found.crc != batch.crc and not is_rewritten):
            return batch
    return None


def _is_rewritten(batch: BatchHeader) -> bool:
    """True if compaction has removed records of the batch, or has stored when its tombstones may be
    removed.
    """
    # a whole batch has as many records as offsets
    return batch.record_count <= batch.last_offset_delta or batch.has_delete_horizon
