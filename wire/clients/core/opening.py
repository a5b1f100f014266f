"""Records out of raw batches, at the edge: what lies below the position, markers and aborted records are left out. Pure.

Everything before this moves batches as bytes; who needs records calls this. Each batch's checksum is verified before it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wire.clients.core.committed import batches_left_out
from wire.record_batch import Buffer, InvalidBatch, iterate_headers, verify_crc
from wire.records import Record, decode_batch


def records_in(
    records: Buffer, *, first_offset: int, aborted: Iterable[tuple[int, int]] = (), is_committed_only: bool = False
) -> Iterator[Record]:
    """The records from `first_offset` on. Raises InvalidBatch for a damaged batch, when it is reached."""
    left_out = batches_left_out(records, aborted=aborted) if is_committed_only else frozenset()
    for position, header in iterate_headers(records):
        if header.is_control or header.base_offset in left_out:
            continue
        if not verify_crc(records, position, header):
            raise InvalidBatch(f"the checksum of the batch at offset {header.base_offset} does not fit", position)
        for record in decode_batch(records, position, header):
            if record.offset >= first_offset:
                yield record
