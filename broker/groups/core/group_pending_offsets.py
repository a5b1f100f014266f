"""Offsets of groups that were written in transactions which are not committed yet. Pure.

Changed by records only, in the order of the log. The newest record of a partition decides: a commit
outside the transaction, or one of another transaction that was written later, makes a pending
offset void, as compaction would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from broker.groups.core.group_messages import OffsetCommitted, OffsetPending
from wire.protocol.ids import TopicPartition

_Key = tuple[str, TopicPartition]


class _Entry(NamedTuple):
    order: int
    record: OffsetPending


class PendingOffsets(Struct):
    """Pending offsets by producer."""

    _producers: dict[int, dict[_Key, _Entry]] = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)
    _next_order: int = 0

    def __len__(self) -> int:
        return sum(map(len, self._producers.values()))

    def epoch_of(self, producer_id: int) -> int | None:
        """The epoch of the producer's open transaction; None if it has none here."""
        return self._epochs.get(producer_id)

    def holds(self, group_id: str, partition: TopicPartition) -> bool:
        """True while some transaction may still change the offset."""
        return any((group_id, partition) in entries for entries in self._producers.values())

    def groups(self) -> set[str]:
        """The groups whose offsets open transactions may still change."""
        return {group for entries in self._producers.values() for group, _ in entries}

    def of(self, group_id: str) -> set[TopicPartition]:
        """The partitions of the group whose offsets open transactions may still change."""
        keys = (key for entries in self._producers.values() for key in entries)
        return {partition for group, partition in keys if group == group_id}

    def put(self, record: OffsetPending) -> None:
        """A transaction wrote an offset."""
        self._epochs[record.producer_id] = record.producer_epoch
        entries = self._producers.setdefault(record.producer_id, {})
        entries[record.group_id, record.partition] = _Entry(self._next_order, record)
        self._next_order += 1

    def void(self, group_id: str, partition: TopicPartition, *, before: int | None = None) -> None:
        """Void pending offsets: a newer record of the partition is valid."""
        if not self._producers:
            return
        key = (group_id, partition)
        for entries in self._producers.values():
            entry = entries.get(key)
            if entry is not None and (before is None or entry.order < before):
                del entries[key]

    def end(self, producer_id: int, *, is_commit: bool) -> Iterator[OffsetCommitted]:
        """End the producer's transaction; return the offsets that are now valid."""
        self._epochs.pop(producer_id, None)
        entries = self._producers.pop(producer_id, {})
        for (group_id, partition), entry in entries.items() if is_commit else ():
            self.void(group_id, partition, before=entry.order)
            yield OffsetCommitted(group_id=group_id, partition=partition, value=entry.record.value)
