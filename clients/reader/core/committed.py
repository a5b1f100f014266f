"""Finds the batches of a fetch response that hold no committed records: markers, empty batches, and
batches of aborted transactions. Pure.

Works on headers; only markers are opened. Called by consumers that read committed records, and by
the mirror of a translate link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from wire.batches.record_batch import BatchHeader, Buffer, iterate_headers
from wire.batches.records import decode_batch

_ABORT_MARKER = 0


def skipped_batches(
    records: Buffer,
    *,
    aborted: Iterable[tuple[int, int]],
    is_unwanted: Callable[[BatchHeader], bool] = lambda _: False,
) -> frozenset[int]:
    """Base offsets of the batches that are not returned. A partial last batch is ignored.

    `aborted` are (producer id, first offset) as a read-committed fetch answers them; `is_unwanted`
    may name more.
    """
    waiting: dict[int, list[int]] = defaultdict(list)
    for producer_id, first_offset in aborted:
        waiting[producer_id].append(first_offset)
    for offsets in waiting.values():
        offsets.sort(reverse=True)
    aborting: set[int] = set()
    skipped: set[int] = set()
    for position, header in iterate_headers(records, may_end_in_partial=True):
        pending = waiting.get(header.producer_id)
        if pending and pending[-1] <= header.last_offset and header.is_transactional:
            if not header.is_control:
                pending.pop()
                aborting.add(header.producer_id)
            elif is_abort_marker(records, position, header):
                # All of the transaction's records are before the fetched range.
                pending.pop()
        if header.is_control:
            if is_abort_marker(records, position, header):
                aborting.discard(header.producer_id)
            skipped.add(header.base_offset)
        elif (
            header.record_count == 0
            or (header.is_transactional and header.producer_id in aborting)
            or is_unwanted(header)
        ):
            skipped.add(header.base_offset)
    return frozenset(skipped)


def is_abort_marker(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """True if a control batch aborts its transaction (key: int16 version, int16 type)."""
    if header.record_count == 0:
        return False
    marker = next(iter(decode_batch(buffer, position, header)))
    return marker.key is not None and len(marker.key) >= 4 and int.from_bytes(marker.key[2:4]) == _ABORT_MARKER
