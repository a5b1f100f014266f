"""Decisions of a coordinator that are being written to the log, and their batches."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from wire.batches.records import Record, encode_batch

BATCH_BYTES_MAX: Final = 512 * 1024
"""Maximum size of one batch; well below any usual `message.max.bytes`. A single larger record gets
its own batch.
"""


APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size of one append, unless a single decision has more."""


Content = Sequence[Record] | bytes
"""The records of a decision: plain records, which share batches with other decisions, or whole
batches; empty when the decision writes nothing.
"""


DecisionT = TypeVar("DecisionT")


class Write(Struct, Generic[DecisionT], frozen=True, kw_only=True):
    """A decision that is being written to the log."""

    number: int
    lane: str
    decision: DecisionT
    content: Content
    size_bytes: int
    is_applied: bool


class AwaitedWrites(Struct, Generic[DecisionT], frozen=True):
    """The decisions of one append in progress."""

    writes: list[Write[DecisionT]]
    append: Awaitable[object]


def bytes_of(record: Record) -> int:
    """The bytes of the record's key and value."""
    return len(record.key or b"") + len(record.value or b"")


def batches_of(writes: Iterable[Write[Any]], *, now_ms: int) -> bytes:
    """The writes in order; plain records share batches as far as possible, and the records of one
    write stay in one batch if they fit.
    """
    parts: list[bytes] = []
    plain: list[Record] = []
    size_bytes = 0
    for write in writes:
        content = write.content
        if plain and (isinstance(content, bytes) or size_bytes + write.size_bytes > BATCH_BYTES_MAX):
            parts.extend(plain_batches(plain, now_ms=now_ms))
            plain, size_bytes = [], 0
        if isinstance(content, bytes):
            parts.append(content)
        else:
            plain.extend(content)
            size_bytes += write.size_bytes
    parts.extend(plain_batches(plain, now_ms=now_ms))
    return b"".join(parts)


def plain_batches(records: Iterable[Record], *, now_ms: int) -> Iterable[bytes]:
    """The records as batches of a bounded size, with this timestamp; none if there are no
    records.
    """
    batch: list[Record] = []
    size_bytes = 0
    for record in records:
        record_bytes = bytes_of(record)
        if batch and size_bytes + record_bytes > BATCH_BYTES_MAX:
            yield encode_batch(batch)
            batch, size_bytes = [], 0
        batch.append(record._replace(timestamp_ms=now_ms))
        size_bytes += record_bytes
    if batch:
        yield encode_batch(batch)
