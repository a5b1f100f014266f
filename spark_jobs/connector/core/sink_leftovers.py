"""Finds which rows of a batch another site has written before the failover, so that the batch that
is run again writes the others alone. Pure.

The records of a sink's topic and the decision about their batch cross a link by different ways. A
site that is promoted may have committed records of a batch and no decision about it. Which
transactions these are follows from the last decision that did arrive: a producer's epoch grows with
each transaction, so a task's committed transactions of a later epoch belong to later batches. A
producer that this decision does not name is recognised by the markers of its transactions, which
name the task's transactional id (`wire/batches/transaction_members.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_jobs.connector.core.sink_decisions import (
    BatchNotWhole,
    Decision,
    TaskTransaction,
    transactional_id,
)
from wire.batches.record_batch import BatchHeader
from wire.batches.records import Record
from wire.batches.transaction_records import decode_marker
from wire.protocol.ids import PartitionKey
from wire.rules.producer_ids import site_number_of

EPOCH_MAX: Final = 0x7FFF
CLOCKS_DIFFER_MS: Final = 300_000
"""How far the clocks of drivers and workers may differ."""
TRANSACTION_MS_MAX: Final = 3_600_000
"""How long before its decision a batch begins, at most; brokers allow 15 minutes by default."""
WRITE_AGAIN: Final = (
    "Accepted for one start: antipode.after.failover=write, which writes the batch whole, perhaps a second time"
)


class Producer(NamedTuple):
    """A producer as a partition's leader describes it; `coordinator_epoch` is -1 if none of its
    transactions has ended there.
    """

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    coordinator_epoch: int


class Epochs(NamedTuple):
    """Epochs of a producer, both included."""

    first: int = 0
    last: int = EPOCH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The transactions of a task that may have rows of a batch: those of `listed` producers with
    such epochs, written since a time, 0 if it is unknown. With `transactional_id` also those of
    producers from other sites that no decision names. `is_certain` False: they may also have rows
    of earlier batches.
    """

    listed: Mapping[int, Epochs] = field(default_factory=dict)
    transactional_id: str = ""
    site_number: int = 0
    """Of this site."""
    settled: frozenset[int] = frozenset()
    """Producers that a decision names, with another task or without later epochs."""
    since_ms: int = 0
    is_certain: bool = True
    is_known_elsewhere: bool = False
    """The query, or this task, has written at another site."""

    def is_candidate(self, producer: Producer) -> bool:
        """True for producers whose markers may name the task."""
        return (
            bool(self.transactional_id)
            and producer.producer_id not in self.settled
            and site_number_of(producer.producer_id) != self.site_number
            and producer.coordinator_epoch >= 0
            and producer.last_timestamp_ms >= self.since_ms
        )


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


def sought_of(earlier: Decision | None, *, query: str, batch: int, task: int, producer_id: int) -> Sought | None:
    """What the task looks for; None if it has no rows of the batch at another site. `producer_id`
    is the query's at this site.
    """
    site_number, name = site_number_of(producer_id), transactional_id(query, task)
    if earlier is None:
        return Sought(transactional_id=name, site_number=site_number, is_certain=batch == 0)
    part = earlier.part_about(task)
    last = part.last_of(task)
    since_ms = max(0, part.decided_ms - CLOCKS_DIFFER_MS)
    if part.batch == batch:
        if last is None or last not in part.transactions:
            return None
        epochs = Epochs(last.producer_epoch, last.producer_epoch)
        since_ms = max(0, since_ms - TRANSACTION_MS_MAX)
        return Sought(listed={last.producer_id: epochs}, since_ms=since_ms, is_known_elsewhere=True)
    known = [one.producer_id for each in (earlier, *earlier.strays) for one in (*each.transactions, *each.others)]
    return Sought(
        listed={} if last is None else {last.producer_id: Epochs(last.producer_epoch + 1)},
        transactional_id=name,
        site_number=site_number,
        settled=frozenset(known),
        since_ms=since_ms,
        is_certain=part.batch == batch - 1,
        is_known_elsewhere=True,
    )


class PartitionLeftovers:
    """The committed rows of a task in one partition, from the batches of its log in order."""

    def __init__(self, producers: Mapping[int, Epochs]) -> None:
        self._producers = producers
        self._open: dict[int, list[StoredRow]] = {}
        self._open_end = 0
        self.rows: deque[StoredRow] = deque()
        self.last = (-1, -1)
        """Producer id and epoch of the last committed transaction."""
        self.end_offset = 0

    def is_wanted(self, header: BatchHeader) -> bool:
        """True for batches that `take` needs."""
        return header.producer_id in self._producers and header.is_transactional

    def take(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """The next batch."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not header.is_control:
            first, last = self._producers[producer_id]
            if first <= epoch <= last:
                self._open.setdefault(producer_id, []).extend(map(StoredRow.of, records))
                self._open_end = header.next_offset
            return
        rows = self._open.pop(producer_id, [])
        for record in records:
            is_commit, _ = decode_marker(record)
            if is_commit and rows:
                self.rows += rows
                self.last, self.end_offset = (producer_id, epoch), self._open_end


class Leftovers:
    """The committed rows of a task by partition, which its rows of this attempt use up."""

    def __init__(self, sought: Sought, *, query: str, batch: int, task: int) -> None:
        self.sought = sought
        self.producers = dict(sought.listed)
        """The task's, with those that were found."""
        self._what = f"batch {batch} of query {query}, task {task}"
        self._task = task
        self._waiting: dict[PartitionKey, deque[StoredRow]] = {}
        self.ends: dict[PartitionKey, int] = {}
        """The offsets behind these rows."""
        self._last: TaskTransaction | None = None

    @property
    def transaction(self) -> TaskTransaction | None:
        """The last transaction of the task at the former site; None if nothing of it was found."""
        return self._last

    def recognise(self, producer_id: int) -> None:
        """Note that a producer which no decision names was the task's."""
        self.producers[producer_id] = Epochs()

    def add(self, place: PartitionKey, found: PartitionLeftovers) -> None:
        """What a partition has. BatchNotWhole where the rows may be of an earlier batch."""
        if not found.rows:
            return
        if not self.sought.is_certain:
            raise BatchNotWhole(
                f"{self._what}: {place[0]}-{place[1]} has {len(found.rows)} committed rows of this or an earlier batch, "
                "and this site lacks the list of the batch before: it was lost in the failover, or the link leaves "
                f"groups antipode-spark.* out. {WRITE_AGAIN}"
            )
        self._waiting[place] = found.rows
        self.ends[place] = found.end_offset
        # the task has a producer that no decision names since its listed one was used up
        if self._last is None or found.last[0] not in self.sought.listed:
            self._last = TaskTransaction(self._task, *found.last)

    def refuse_unread(self, topic: str) -> None:
        """BatchNotWhole for a topic that the query's user may not read, if the query has written at
        another site.
        """
        if self.sought.is_known_elsewhere:
            raise BatchNotWhole(
                f"{self._what}: the query wrote at another site before, and its user may not read topic {topic} to see "
                "whether rows of this batch are there. Accepted: the right to read it (ACL Read). "
                f"{WRITE_AGAIN}"
            )

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
            f"rows this time. {WRITE_AGAIN}"
        )
