"""A partition's log as a list of batches, which passes of a compactor thin out as brokers do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from wire.batches.record_batch import encode_header, read_header
from wire.batches.records import Record, decode_batch, decode_records, encode_record, seal_batch


@dataclass
class Log:
    """One partition's log."""

    chance: random.Random
    batches: list[bytes] = field(default_factory=list)
    end: int = 0

    def append(self, batch: bytes) -> int:
        offset = self.end
        header = read_header(batch)
        self.batches.append(encode_header(header._replace(base_offset=offset), batch[61:]) + batch[61:])
        self.end += header.last_offset_delta + 1
        return offset

    def records(self) -> list[Record]:
        return list(decode_records(b"".join(self.batches)))

    def compact(self) -> None:
        """One pass over all but the end of the log: the last record of each key stays, if it is not
        a tombstone that is old enough.
        """
        bound = self.chance.randint(0, max(0, len(self.batches) - 1))
        passed, rest = self.batches[:bound], self.batches[bound:]
        last = {record.key: record.offset for record in decode_records(b"".join(passed))}
        forgets_tombstones = self.chance.random() < 0.3
        kept = (
            thinned(batch, lambda one: one.offset == last[one.key] and not (forgets_tombstones and one.value is None))
            for batch in passed
        )
        self.batches = [batch for batch in kept if read_header(batch).record_count or self.chance.random() < 0.3] + rest

    def expire(self) -> None:
        self.batches = self.batches[self.chance.randint(0, max(0, len(self.batches) - 1)) :]


def thinned(batch: bytes, keeps: object) -> bytes:
    """The batch with some of its records, at the places that they had."""
    header = read_header(batch)
    assert callable(keeps)
    records = [record for record in decode_batch(batch, 0, header) if keeps(record)]
    body = b"".join(
        encode_record(record, record.offset - header.base_offset, header.base_timestamp) for record in records
    )
    sealed = seal_batch(
        body, record_count=len(records), base_timestamp=header.base_timestamp, max_timestamp=header.max_timestamp
    )
    changed = read_header(sealed)._replace(
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return encode_header(changed, body) + body
