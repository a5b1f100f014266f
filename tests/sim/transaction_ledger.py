"""The guarantees of transactions, checked against the records that read-committed readers see and
against the logs in the end.

A transaction is known by its producer's name and number, a batch of it by a label in its records.
Partitions are named by topic and index: topics with transactions are never deleted.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from broker.log.markers import read_marker
from tests.sim.ledger import Ledger
from tests.sim.stored_logs import StoredLog
from tests.sim.world import World
from wire.batches.record_batch import iterate_headers

Place = tuple[str, int]
"""Topic and partition."""
_LABEL: Final = re.compile(rb"<(\w+:\d+:\d+)>")


class Outcome(enum.Enum):
    """The end of a transaction as far as its producer knows it."""

    OPEN = "open"
    """It did not ask for an end yet, or asked for an abort and has no answer."""
    ASKED = "asked to commit"
    """It has no answer. In the end either outcome is right, the same one in all partitions."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction of a simulated producer."""

    producer: str
    number: int
    began_s: float
    outcome: Outcome = Outcome.OPEN
    written: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Labels of acknowledged batches."""
    has_offset: bool = False
    """True if the offset of its group was acknowledged; the offset is the number of the
    transaction.
    """

    @property
    def name(self) -> str:
        """The transaction's name in stories and labels."""
        return f"{self.producer}:{self.number}"


class TransactionLedger:
    """The transactions of one run, as their producers know them."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self.transactions: dict[str, Transaction] = {}
        self.seen: dict[Place, dict[str, int]] = defaultdict(dict)
        """Label to offset, as read-committed readers saw it."""

    @property
    def is_waived(self) -> bool:
        """Whether a loss of power cost records without a promise. Then transactions have no promise
        either.
        """
        return bool(self._ledger.waived)

    def begin(self, producer: str, number: int) -> Transaction:
        """A producer begins a transaction."""
        begun = Transaction(producer, number, self._world.loop.now_s)
        self.transactions[begun.name] = begun
        return begun

    def see(self, place: Place, offset: int, content: bytes) -> None:
        """A reader of committed records has read this batch."""
        label = label_of(content)
        if label is None or self.is_waived:
            return
        transaction = self._of_label(label)
        if transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            self._world.violate(
                "uncommitted-records-stay-unseen",
                f"{place} at offset {offset}: a reader of committed records sees {label}, which is {transaction.outcome.value}",
            )
        former = self.seen[place].setdefault(label, offset)
        if former != offset:
            self._world.violate(
                "transactions-once-and-in-order", f"{place}: {label} is at offset {former} and at {offset}"
            )

    def _of_label(self, label: str) -> Transaction:
        return self.transactions[label.rpartition(":")[0]]

    def possible_offsets(self, producer: str) -> set[int]:
        """The possible final offsets of a producer's group: the offset of its last committed
        transaction, or of a later one whose commit was requested; -1 for none.
        """
        own = [one for one in self.transactions.values() if one.producer == producer and one.has_offset]
        last = max((one.number for one in own if one.outcome is Outcome.COMMITTED), default=-1)
        return {last} | {one.number for one in own if one.outcome is Outcome.ASKED and one.number > last}

    # --- the end

    def unsound_endings(self, logs: Mapping[Place, StoredLog]) -> Iterator[tuple[str, str]]:
        """Invariant and story for each promise that the logs break; every log ends without an open
        transaction.
        """
        if self.is_waived:
            return
        committed = {place: list(_committed_labels(log)) for place, log in logs.items()}
        for transaction in self.transactions.values():
            yield from _broken_promises(transaction, committed)
        for place, labels in committed.items():
            yield from _disorder(place, labels)
            if set(labels) != self.seen[place].keys():
                missing = sorted(set(labels) - self.seen[place].keys())[:5]
                beyond = sorted(self.seen[place].keys() - set(labels))[:5]
                yield (
                    "transactions-are-whole",
                    f"{place}: a reader of committed records missed {missing} and saw {beyond}, which are not committed",
                )


def _broken_promises(transaction: Transaction, committed: Mapping[Place, list[str]]) -> Iterator[tuple[str, str]]:
    found = {
        place: [label for label in labels if label in committed[place]] for place, labels in transaction.written.items()
    }
    is_seen, is_whole = any(found.values()), found == transaction.written
    outcome = transaction.outcome
    if outcome is Outcome.COMMITTED and not is_whole:
        yield (
            "transactions-are-whole",
            f"{transaction.name} is committed with {dict(transaction.written)}, the logs have {found}",
        )
    elif outcome in (Outcome.ABORTED, Outcome.OPEN) and is_seen:
        yield "uncommitted-records-stay-unseen", f"{transaction.name} is {outcome.value}, the logs commit {found}"
    elif is_seen and not is_whole:
        yield (
            "transactions-are-whole",
            f"{transaction.name} is committed in part: {found} of {dict(transaction.written)}",
        )


def _disorder(place: Place, labels: list[str]) -> Iterator[tuple[str, str]]:
    by_producer: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for label in labels:
        producer, number, part = label.split(":")
        by_producer[producer].append((int(number), int(part)))
    for producer, numbers in by_producer.items():
        if any(one >= another for one, another in pairwise(numbers)):
            yield "transactions-once-and-in-order", f"{place} has the committed batches of {producer} as {numbers}"


def _committed_labels(log: StoredLog) -> Iterator[str]:
    """In the order of the log, by its markers; of each producer id at most one transaction is
    open.
    """
    is_committed: dict[int, bool] = {}
    open_labels: dict[int, list[int]] = defaultdict(list)
    labels: dict[int, str] = {}
    for batch in log.batches:
        for _, header in iterate_headers(batch.content):
            if header.is_control:
                marker = read_marker(batch.content, 0, header)
                for offset in open_labels.pop(header.producer_id, ()):
                    is_committed[offset] = marker is not None and marker.is_commit
            elif header.is_transactional and (label := label_of(batch.content)) is not None:
                labels[header.base_offset] = label
                open_labels[header.producer_id].append(header.base_offset)
    yield from (label for offset, label in labels.items() if is_committed.get(offset))


def label_of(content: bytes) -> str | None:
    """The label of a transactional producer's batch, None in others' batches."""
    found = _LABEL.search(content)
    return None if found is None else found[1].decode()
