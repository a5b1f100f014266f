"""Finds which rows of a batch another site has written before the failover, so that the batch that
is run again writes the others alone. Pure.

The records of a sink's topic and the decision about their batch cross a link by different ways. A
site that is promoted may have committed records of a batch and no decision about it. Which
transactions these are follows from the last decision that did arrive: a producer's epoch grows with
each transaction, so a task's committed transactions of a later epoch belong to later batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_jobs.connector.core.sink_decisions import BatchNotWhole, Decision, TaskTransaction
from wire.batches.record_batch import BatchHeader
from wire.batches.records import Record
from wire.batches.transaction_records import decode_marker
from wire.protocol.ids import PartitionKey

EPOCH_MAX: Final = 0x7FFF
CLOCKS_DIFFER_MS: Final = 300_000
"""How far the clocks of drivers and workers may differ."""
TRANSACTION_MS_MAX: Final = 3_600_000
"""How long before its decision a batch begins, at most; brokers allow 15 minutes by default."""


class Former(NamedTuple):
    """The transactions of a task that may have rows of this batch: of this producer, with an epoch
    from `epoch_min` to `epoch_max`, written since a time. `is_certain` False: they may also have
    rows of earlier batches.
    """

    producer_id: int
    epoch_min: int
    epoch_max: int
    since_ms: int
    is_certain: bool


class StoredRow(NamedTuple):
    """The content of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, record: Record) -> StoredRow:
        """A record's content."""
        return cls(record.key, record.value, tuple(record.headers))


def is_moved(earlier: Decision | None, producer_id: int) -> bool:
    """True if the newest decision was made at another site: there the query had another producer
    id, and each site has ids of its own.
    """
    return earlier is not None and earlier.producer_id not in (-1, producer_id)


def former_of(earlier: Decision, *, batch: int, task: int) -> Former | None:
    """The task's transactions that may have rows of the batch; None for a task that had no
    transaction up to that decision.
    """
    last = earlier.last_of(task)
    if last is None:
        return None
    since_ms = max(0, earlier.decided_ms - CLOCKS_DIFFER_MS)
    if earlier.batch == batch:
        if last not in earlier.transactions:
            return None
        epoch = last.producer_epoch
        return Former(last.producer_id, epoch, epoch, max(0, since_ms - TRANSACTION_MS_MAX), is_certain=True)
    return Former(last.producer_id, last.producer_epoch + 1, EPOCH_MAX, since_ms, earlier.batch == batch - 1)


class PartitionLeftovers:
    """The committed rows of a task in one partition, from the batches of its log in order."""

    def __init__(self, former: Former) -> None:
        self._former = former
        self._open: list[StoredRow] = []
        self._open_epoch = -1
        self._open_end = 0
        self.rows: deque[StoredRow] = deque()
        self.epoch = -1
        """Of the last committed transaction."""
        self.end_offset = 0

    def is_wanted(self, header: BatchHeader) -> bool:
        """True for batches that `take` needs."""
        return header.producer_id == self._former.producer_id and header.is_transactional

    def take(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """The next batch."""
        if not header.is_control:
            if self._former.epoch_min <= header.producer_epoch <= self._former.epoch_max:
                self._open += map(StoredRow.of, records)
                self._open_epoch, self._open_end = header.producer_epoch, header.next_offset
            return
        for record in records:
            is_commit, _ = decode_marker(record)
            if is_commit and self._open:
                self.rows += self._open
                self.epoch, self.end_offset = self._open_epoch, self._open_end
        self._open = []


class Leftovers:
    """The committed rows of a task by partition, which its rows of this attempt use up."""

    def __init__(self, former: Former, *, query: str, batch: int, task: int) -> None:
        self.former = former
        self._what = f"batch {batch} of query {query}, task {task}"
        self._query = query
        self._task = task
        self._waiting: dict[PartitionKey, deque[StoredRow]] = {}
        self.ends: dict[PartitionKey, int] = {}
        """The offsets behind these rows."""
        self._epoch = -1

    @property
    def transaction(self) -> TaskTransaction | None:
        """The last transaction of the task at the former site; None if nothing of it was found."""
        return TaskTransaction(self._task, self.former.producer_id, self._epoch) if self._epoch >= 0 else None

    def add(self, place: PartitionKey, found: PartitionLeftovers) -> None:
        """What a partition has. BatchNotWhole where the rows may be of an earlier batch."""
        if not found.rows:
            return
        if not self.former.is_certain:
            raise BatchNotWhole(
                f"{self._what}: {place[0]}-{place[1]} has {len(found.rows)} committed rows of this or an earlier batch, "
                "and this site lacks the list of the batch before: it was lost in the failover. Accepted: another "
                "name (antipode.query), which writes the batch, perhaps a second time"
            )
        self._waiting[place] = found.rows
        self.ends[place] = found.end_offset
        self._epoch = max(self._epoch, found.epoch)

    def has(self, place: PartitionKey) -> bool:
        """True if the task's rows of this partition are there."""
        return place in self._waiting

    def use(self, place: PartitionKey, rows: Iterable[StoredRow]) -> None:
        """Rows that are there already. BatchNotWhole if they are others."""
        waiting = self._waiting[place]
        for row in rows:
            if not waiting or waiting.popleft() != row:
                raise self._other_rows(place)

    def check_used(self) -> None:
        """BatchNotWhole if there are more rows than this attempt has."""
        for place, waiting in self._waiting.items():
            if waiting:
                raise self._other_rows(place)

    def _other_rows(self, place: PartitionKey) -> BatchNotWhole:
        return BatchNotWhole(
            f"{self._what}: the failover left committed rows of it in {place[0]}-{place[1]}, and the task has other "
            "rows this time. Accepted: another name (antipode.query), which writes the batch a second time"
        )
