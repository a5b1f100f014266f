"""Apache Kafka's verdicts on the batches of `tests/support/disks/mutated_batches.py`; `__main__.py`
produces them.

`STRICTER` and `codes_for` name where Antipode means to differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tests.support.disks.mutated_batches import NOW_MS
from wire.batches.record_batch import BatchHeader

VERDICTS: Final = Path(__file__).parent / "verdicts.json"
JUDGED: Final[Mapping[str, Mapping[str, Any]]] = json.loads(VERDICTS.read_text(encoding="utf-8"))["verdicts"]
UNKNOWN_SERVER_ERROR: Final = -1

_OFFSETS = (
    "consumers compute offsets from the deltas of the records: they would see one twice, or those of other records"
)
_LENGTHS = "consumers do not agree on what a length below -1 means"
_SIZES = "a reader that goes by the length of the record gets lost; Kafka looks at it only where nothing is compressed"
_BEHIND = "bytes behind the batch are not records, and the producer may believe that they were stored"
_PRODUCER = "a producer id without an epoch protects nothing"
_TIME_TYPE = "the producer's clock would count as the broker's"
STRICTER: Final = {
    "offsets-backwards": _OFFSETS,
    "offsets-equal": _OFFSETS,
    "offsets-from-1": _OFFSETS,
    "offsets-negative": _OFFSETS,
    "offsets-with-a-hole": _OFFSETS,
    "offsets-with-a-hole-for-gzip": _OFFSETS,
    "offsets-with-a-hole-for-uncompressed": _OFFSETS,
    **{
        f"{what}{where}": _LENGTHS
        for what in ("key-length-minus-2", "key-length-minimum", "value-length-minus-2", "header-value-length-minus-2")
        for where in ("", "-lz4", "-second-of-three")
    },
    **{
        f"record-length-{what}-lz4": _SIZES
        for what in ("0", "by-one-too-large", "by-one-too-small", "huge", "negative", "too-large", "too-small")
    },
    "half-a-batch-behind": _BEHIND,
    "zeros-behind": _BEHIND,
    "producer-without-epoch": _PRODUCER,
    "claims-log-append-time": _TIME_TYPE,
}
"""Batches that Apache Kafka stores and Antipode refuses, with the reason."""


def codes_for(name: str) -> set[int]:
    """The error codes that are right for a batch of the table; 0 where it is stored."""
    code = JUDGED[name]["error_code"]
    if name in STRICTER:
        return {ErrorCode.invalid_timestamp} if name == "claims-log-append-time" else {ErrorCode.invalid_record}
    if code == UNKNOWN_SERVER_ERROR:
        # Kafka's readers fail in their own ways; a client is better served with a code that says
        # what is wrong
        unknown_codec = name.startswith("codec-")
        return {ErrorCode.unsupported_compression_type if unknown_codec else ErrorCode.invalid_record}
    if code == ErrorCode.transactional_id_authorization_failed:
        return {ErrorCode.invalid_record}  # Kafka looks at the request's transactional id first
    # a mutation may come to one of the differences above
    return {0, ErrorCode.invalid_record} if code == 0 and name.startswith("mutated-") else {code}


def stored_header(header: BatchHeader, now_ms: int | None) -> dict[str, int]:
    """The fields that a broker may change on the way in. Times of a run at `now_ms` count as of
    `NOW_MS`.
    """
    shift_ms = 0 if now_ms is None or header.base_timestamp < 0 else NOW_MS - now_ms
    return {
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": header.base_timestamp + shift_ms,
        "max_timestamp": header.max_timestamp + shift_ms,
        "record_count": header.record_count,
    }
