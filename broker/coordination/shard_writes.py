"""Decisions of a coordinator on their way into the log, and the batches that they become."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from wire.batches.records import Record, encode_batch

BATCH_BYTES_MAX: Final = 512 * 1024
"""Records of one batch; well below the smallest message.max.bytes that anybody sets. A single
larger record stays alone.
"""


APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Batches of one append, unless a single decision has more."""


KeyValue = tuple[bytes, bytes | None]


Content = Sequence[KeyValue] | bytes
"""The records of a decision: plain records, which share batches with other decisions, or whole
batches; empty when the decision writes nothing.
"""


DecisionT = TypeVar("DecisionT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Generic[DecisionT]):
    """A decision on its way into the log."""

    number: int
    lane: str
    decision: DecisionT
    content: Content
    size_bytes: int
    is_applied: bool


@dataclass(frozen=True, slots=True)
class AwaitedWrites(Generic[DecisionT]):
    """Decisions of one append that is under way."""

    writes: list[Write[DecisionT]]
    append: Awaitable[object]


def bytes_of(record: KeyValue) -> int:
    """The bytes of the record's key and value."""
    key, value = record
    return len(key) + len(value or b"")


def batches_of(writes: Iterable[Write[Any]], *, now_ms: int) -> bytes:
    """The writes in their order; the plain records of as many as possible in one batch, those of
    each in one if they fit there.
    """
    parts: list[bytes] = []
    plain: list[KeyValue] = []
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


def plain_batches(records: Iterable[KeyValue], *, now_ms: int) -> Iterable[bytes]:
    """The records as batches of a bounded size; nothing for no records."""
    batch: list[Record] = []
    size_bytes = 0
    for key, value in records:
        record_bytes = bytes_of((key, value))
        if batch and size_bytes + record_bytes > BATCH_BYTES_MAX:
            yield encode_batch(batch)
            batch, size_bytes = [], 0
        batch.append(Record(key, value, now_ms))
        size_bytes += record_bytes
    if batch:
        yield encode_batch(batch)
