"""Computes the digests of a log's leaves from its batch headers, a piece of the log at a time, in a
thread.

A leaf is computed when the high watermark has passed it. The headers are read from the segment
files; bodies are not, so a changed body shows only where its checksum was changed with it. Partial
leaves at either end of a requested range are read on request.

Callers: broker/replication/housekeeping.py in the background,
broker/handlers/links/range_digests.py for logs that are asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Final, TypeVar

from broker.log.errors import CorruptLog
from broker.log.partition_log import PartitionLog
from broker.log.segments.log_slice import LogSlice
from broker.log.threads import in_thread
from wire.batches.leaf_digests import (
    DIGEST_BYTES,
    LEAF_OFFSETS,
    LeafRun,
    first_whole_leaf,
    joined_headers,
    leaf_range,
    node_digests,
    part_digest,
    sealed_leaf,
)

PIECE_BYTES: Final = 4 * 1024 * 1024
PART_OFFSETS: Final = 256
"""At the end of a range, so many offsets at most are read again by the next request for a longer
range. Sites are compared every few seconds, and a leaf may have 4,096 batches.
"""
HEADERS_PIECE_BYTES: Final = 32 * 1024 * 1024
"""A range of headers is bounded by its offsets, and only the headers are read from its part of the
log; each piece costs the broker a turn in a thread.
"""

Read = TypeVar("Read")


def sealable_end(log: PartitionLog) -> int:
    """The leaf behind the last one that the high watermark has passed; 0 for a compacted log, which
    has no leaves.
    """
    return 0 if log.config.is_compacted else sealed_leaf(log.high_watermark)


def has_unsealed(log: PartitionLog) -> bool:
    """True if a complete leaf of the log has no digest."""
    digests = log.digests
    # first what is false for nearly all of thousands of idle logs
    return (
        sealed_leaf(log.high_watermark) > digests.end_leaf
        and not digests.failure
        and sealable_end(log) > max(first_whole_leaf(log.log_start_offset), digests.end_leaf)
    )


async def seal_some(log: PartitionLog) -> bool:
    """Read one piece of the log, if a complete leaf has no digest; return True if another piece
    remains. StorageError.

    Bytes that are no batch stop the log's leaves there (`failure`) until it is truncated below.
    """
    digests = log.digests
    # without the lock: usually most logs have no new leaf
    if not has_unsealed(log):
        return False
    async with digests.turn:
        if not digests.is_loaded:
            generation = digests.generation
            # the file is read in a turn of its own, so that one turn costs one read
            stored = await in_thread(digests.read)
            digests.adopt(stored, generation, log_start_offset=log.log_start_offset)
            return True
        digests.begin_at(log.log_start_offset)
        end = log.high_watermark
        if log.is_abandoned or sealable_end(log) <= digests.end_leaf:
            return False
        generation, run = digests.generation, digests.open_run()
        try:
            is_last = await _with_piece(log, run.next_offset, end, partial(_digest, run=run, end=end))
        except CorruptLog as fault:
            # a concurrent truncation may have removed the damage: then the next turn tries again
            if generation == digests.generation:
                digests.failure = str(fault)
            return False
        # no batch below `end` is left, so a leaf that ends in a hole is complete too
        if is_last:
            run.seal_to(sealed_leaf(end))
        # the log was truncated while the thread read: it may have read removed batches
        if not digests.take(run, generation):
            return True
        save = digests.unsaved()
        if save is not None:
            await in_thread(partial(digests.write, save))
            digests.note_saved(save)
        return not is_last


async def digests_between(log: PartitionLog, first_offset: int, end_offset: int, *, span: int) -> bytes | None:
    """The digests of the nodes of a range between log start and high watermark; None while its
    leaves are not computed, or if the log has changed in between. StorageError.
    """
    if end_offset <= first_offset:
        return b""
    digests = log.digests
    generation = digests.generation
    leaves = leaf_range(first_offset, end_offset)
    joined = bytearray()
    if leaves.has_part_first:
        headers = await headers_between(log, first_offset, min(leaves.whole_first * LEAF_OFFSETS, end_offset))
        joined += part_digest(headers)
    if leaves.whole_first < leaves.whole_end:
        if digests.first_leaf > leaves.whole_first or digests.end_leaf < leaves.whole_end:
            return None
        begin = leaves.whole_first - digests.first_leaf
        joined += digests.leaves()[begin * DIGEST_BYTES : (leaves.whole_end - digests.first_leaf) * DIGEST_BYTES]
    if leaves.has_part_last:
        joined += await _last_part(log, leaves.whole_end, end_offset)
    # data from several reads must belong to one log
    if generation != digests.generation or log.log_start_offset > first_offset:
        return None
    return node_digests(bytes(joined), leaves.first, span=span)


async def _last_part(log: PartitionLog, leaf: int, end_offset: int) -> bytes:
    """The digest of the leaf's part below `end_offset`."""
    digests = log.digests
    generation = digests.generation
    run = digests.part(leaf, end_offset)
    kept_end = end_offset - end_offset % PART_OFFSETS
    if run.end_offset < kept_end:
        run.add(await headers_between(log, run.end_offset, kept_end), kept_end)
        digests.keep_part(run, generation)
    run.add(await headers_between(log, run.end_offset, end_offset), end_offset)
    return run.digest()


async def headers_between(log: PartitionLog, first_offset: int, end_offset: int) -> bytes:
    """The headers of the batches that begin in the range, joined; the last one may reach over its
    end. StorageError.
    """
    found, offset = bytearray(), first_offset
    while offset < end_offset:
        headers, next_offset = await _with_piece(
            log,
            offset,
            log.high_watermark,
            partial(_headers, first_offset=offset, end_offset=end_offset),
            max_bytes=HEADERS_PIECE_BYTES,
        )
        found += headers
        if next_offset <= offset:
            break
        offset = next_offset
    return bytes(found)


async def _with_piece(
    log: PartitionLog, offset: int, end_offset: int, work: Callable[[LogSlice], Read], *, max_bytes: int = PIECE_BYTES
) -> Read:
    with log.read(offset, max_bytes=max_bytes, end_offset=end_offset) as piece:
        return await in_thread(partial(work, piece))


def _headers(piece: LogSlice, *, first_offset: int, end_offset: int) -> tuple[bytes, int]:
    begun = takewhile(lambda header: header.base_offset < end_offset, piece.headers())
    return joined_headers(begun, first_offset, end_offset), piece.next_offset if len(piece) else first_offset


def _digest(piece: LogSlice, *, run: LeafRun, end: int) -> bool:
    """Add the batches of the piece; return True at the last batch below `end`."""
    begin_offset = run.next_offset
    for header in piece.headers():
        # the first one may have begun in a leaf before, or was taken with the last piece
        if header.base_offset >= begin_offset:
            run.take(header)
    if len(piece):
        run.reach(piece.next_offset)
    return not len(piece) or piece.next_offset >= end
