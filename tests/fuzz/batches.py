"""A client's batches through the leader's checks: stored records are readable, and everything else
is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.core.batch_checks import BatchLimits, BatchRejected, check_produced, check_records, open_produced
from tests.support.disks.mutated_batches import CASES, NOW_MS
from wire.batches.record_batch import InvalidBatch, iterate_headers
from wire.batches.record_walks import read_keys, record_spans
from wire.batches.records import Record, decode_body

LIMITS = BatchLimits(
    message_bytes_max=1 << 20,
    is_log_append_time=False,
    must_have_keys=False,
    timestamp_before_ms_max=2**63 - 1,
    timestamp_after_ms_max=2**63 - 1,
    compression=None,
    compression_level=None,
    opened_bytes_max=1 << 20,
)


def run(data: bytes) -> None:
    """The records field of one partition; checksums are left out, so that mutations get past
    them.
    """
    try:
        for position, header in iterate_headers(data):
            check_produced(header, LIMITS)
            body = open_produced(data, position, header, LIMITS)
            assert len(body) <= LIMITS.opened_bytes_max
            check_records(body, header, LIMITS, NOW_MS)
            _read(body, header.record_count, list(decode_body(body, header)))
    except (BatchRejected, InvalidBatch):
        return


def _read(body: bytes, count: int, records: list[Record]) -> None:
    """All walks over stored records agree on them."""
    assert len(records) == count
    assert len(record_spans(body, count)) == count
    keys: dict[bytes | None, int] = {}
    read_keys(body, 0, len(body), count, 0, keys)
    assert set(keys) == {record.key for record in records}


def seeds() -> Sequence[bytes]:
    """The mutated batches that Apache Kafka has judged."""
    return [case.records for case in CASES.values() if len(case.records) < 2000]
