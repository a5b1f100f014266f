"""Working out the digests of a log's leaves from its batch headers, a piece of the log at a time,
in a thread.

A leaf is worked out once the high watermark has passed it. The headers are read from the segment
files; bodies are not, so a changed body shows only where its checksum was changed with it.

Callers: broker/replication/housekeeping.py in the background, broker/handlers/links/range_digests.py
for logs that are asked about.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.log.core.leaf_digests import LeafRun, first_whole_leaf, sealed_leaf
from broker.log.errors import CorruptLog
from broker.log.log_slice import LogSlice
from broker.log.partition_log import PartitionLog
from broker.log.threads import in_thread

PIECE_BYTES: Final = 8 * 1024 * 1024


def sealable_end(log: PartitionLog) -> int:
    """The leaf behind the last one that the high watermark has passed; 0 for a compacted log, which
    has no leaves.
    """
    return 0 if log.config.is_compacted else sealed_leaf(log.high_watermark)


async def seal_some(log: PartitionLog) -> bool:
    """Read one piece of the log, if a leaf has ended that has no digest; whether another piece
    waits. StorageError.

    Bytes that are no batch stop the log's leaves there (`failure`) until it is truncated below.
    """
    digests = log.digests
    if digests.failure or sealable_end(log) <= max(first_whole_leaf(log.log_start_offset), digests.end_leaf):
        return False
    async with digests.turn:
        if not digests.is_loaded:
            generation = digests.generation
            stored = await in_thread(digests.read)
            digests.adopt(stored, generation, log_start_offset=log.log_start_offset)
            return True
        digests.begin_at(log.log_start_offset)
        end = log.high_watermark
        if log.is_abandoned or sealable_end(log) <= digests.end_leaf:
            return False
        generation, run = digests.generation, digests.open_run()
        with log.read(run.next_offset, max_bytes=PIECE_BYTES, end_offset=end) as piece:
            is_last = not len(piece) or piece.next_offset >= end
            try:
                await in_thread(partial(_digest, piece, run))
            except CorruptLog as fault:
                if generation == digests.generation:
                    digests.failure = str(fault)
                return False
        if is_last:
            run.seal_to(sealed_leaf(end))
        if not digests.take(run, generation):
            return True
        save = digests.unsaved()
        if save is not None:
            await in_thread(partial(digests.write, save))
            digests.note_saved(save)
        return not is_last


def _digest(piece: LogSlice, run: LeafRun) -> None:
    begin_offset = run.next_offset
    for header in piece.headers():
        # the first one may have begun in a leaf before, or was taken with the last piece
        if header.base_offset >= begin_offset:
            run.take(header)
    run.reach(piece.next_offset)
