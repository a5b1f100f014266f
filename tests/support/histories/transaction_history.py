"""The outcomes of transactions, and the records that their readers saw: one value, the
transaction's number, in each partition. Pure.

After the checkers for Kafka histories (a torn, lost, aborted or doubled read). Invariants:

- T1 a transaction is read whole or not at all: a reader of committed records finds the same
  transactions in every partition.
- T2 a transaction whose commit was acknowledged is read.
- T3 one that was aborted, and one that is still open, is not read.
- T4 none is read twice.
- T5 the offset that the group goes on from is that of the last committed transaction.
- T6 no transaction reads its own records among the committed ones (A6, precommitted read).
- T7 no two transactions read from each other, directly or in a circle (A10, G1c by reads alone).

Circles in which a later offset counts too (A10, G0 and G1c) are reported and no breach: Kafka
orders partitions one by one, so two transactions that write at the same time may lie in either
order in each partition.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

Position = tuple[int, int]
"""Partition and offset."""


class Observed(NamedTuple):
    """One committed transaction: where its records are, and which records it read."""

    number: int
    written: Collection[Position]
    read: Collection[Position]


class Cycle(NamedTuple):
    """Transactions each of which comes before all the others, and itself."""

    kind: str
    """G0: by the order of offsets alone. G1c: by reads as well."""
    numbers: tuple[int, ...]


def transaction_violations(
    read: Mapping[int, Sequence[int]], *, committed: Collection[int], aborted: Collection[int]
) -> list[str]:
    """One line for each violation of T1 to T4; empty when all hold. A transaction in neither list
    may be read whole or not at all.
    """
    found: list[str] = []
    everywhere = set().union(*read.values())
    for partition, numbers in sorted(read.items()):
        values = set(numbers)
        found += [f"T1 partition {partition}: {number} is read elsewhere" for number in sorted(everywhere - values)]
        found += [f"T2 partition {partition}: {number} was committed" for number in sorted(set(committed) - values)]
        found += [f"T3 partition {partition}: {number} was aborted" for number in sorted(set(aborted) & values)]
        counts = Counter(numbers)
        found += [
            f"T4 partition {partition}: {number} is read {count} times"
            for number, count in sorted(counts.items())
            if count > 1
        ]
    return found


def offset_violations(offset: int, *, committed: Collection[int]) -> list[str]:
    """One line for a violation of T5, where each transaction commits its own number as the group's
    offset.
    """
    last = max(committed, default=-1)
    return [] if offset == last else [f"T5 the group goes on from {offset}, the last commit was {last}"]


def precommitted_reads(transactions: Iterable[Observed]) -> list[str]:
    """One line for each violation of T6."""
    return [
        f"T6 transaction {seen.number} read its own record at offset {offset} of partition {partition}"
        for seen in transactions
        for partition, offset in sorted(set(seen.written) & set(seen.read))
    ]


def circular_reads(transactions: Collection[Observed]) -> list[str]:
    """One line for each violation of T7."""
    return [
        f"T7 transactions {', '.join(map(str, numbers))} read from each other"
        for numbers in _circles(_by_reads(transactions))
    ]


def cycles(transactions: Collection[Observed]) -> list[Cycle]:
    """A10: the circles that offsets make (G0), then those that offsets and reads make together
    (G1c).
    """
    by_offsets = _by_offsets(transactions)
    either = {seen.number: by_offsets[seen.number] | _by_reads(transactions)[seen.number] for seen in transactions}
    write_circles = _circles(by_offsets)
    found = [Cycle("G0", numbers) for numbers in write_circles]
    return [*found, *(Cycle("G1c", numbers) for numbers in _circles(either) if numbers not in write_circles)]


Graph = Mapping[int, set[int]]
"""Which transactions come after each one."""


def _by_offsets(transactions: Iterable[Observed]) -> Graph:
    """The writers of neighbouring records of a partition, in the order of their offsets."""
    after: dict[int, set[int]] = defaultdict(set)
    writers = sorted((position, seen.number) for seen in transactions for position in seen.written)
    for (one, writer), (another, next_writer) in itertools.pairwise(writers):
        if one[0] == another[0] and writer != next_writer:
            after[writer].add(next_writer)
    return after


def _by_reads(transactions: Collection[Observed]) -> Graph:
    """A transaction that wrote comes before one that read its records."""
    after: dict[int, set[int]] = defaultdict(set)
    writer = {position: seen.number for seen in transactions for position in seen.written}
    for seen in transactions:
        for position in seen.read:
            if position in writer and writer[position] != seen.number:
                after[writer[position]].add(seen.number)
    return after


def _circles(after: Graph) -> list[tuple[int, ...]]:
    """The largest sets of transactions that all come after each other."""
    reached = {number: _reached(after, number) for number in after}
    circles = {
        tuple(sorted(other for other in found if number in reached.get(other, ())))
        for number, found in reached.items()
        if number in found
    }
    return sorted(circles)


def _reached(after: Graph, start: int) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        following = after.get(waiting.pop(), set()) - found
        found |= following
        waiting += following
    return found
