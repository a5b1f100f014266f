"""Records of an archive as they are written again: with headers that say which record of the
archive each one was, since a restored record has another offset. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

TOPIC: Final = "antipode.restored.topic"
PARTITION: Final = "antipode.restored.partition"
OFFSET: Final = "antipode.restored.offset"
TIMESTAMP: Final = "antipode.restored.timestamp"
PROVENANCE: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
"""The names of the added headers; the values are text, the timestamp in Unix ms."""


class ArchivedRecord(NamedTuple):
    """One row of an archive of records; `timestamp_ms` is in Unix ms."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def headers_of(topic: str, partition: int, record: ArchivedRecord) -> tuple[tuple[str, bytes | None], ...]:
    """The record's own headers and those of its provenance. A record that was restored before keeps
    its first provenance.
    """
    if any(name == OFFSET for name, _ in record.headers):
        return tuple(record.headers)
    values = (topic, partition, record.offset, record.timestamp_ms)
    added = ((name, str(value).encode()) for name, value in zip(PROVENANCE, values, strict=True))
    return (*record.headers, *added)
