"""What became of transactions, and what their readers saw: one value, the transaction's number, in each partition. Pure.

After the checkers for Kafka histories (a torn, lost, aborted or doubled read). Invariants:

- T1 a transaction is read whole or not at all: who reads only what is committed finds the same in every partition.
- T2 a transaction whose commit was acknowledged is read.
- T3 one that was aborted, and one that is still open, is not read.
- T4 none is read twice.
- T5 the offset that the group goes on from is that of the last committed transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence


def transaction_violations(
    read: Mapping[int, Sequence[int]], *, committed: Collection[int], aborted: Collection[int]
) -> list[str]:
    """One line for each breach of T1 to T4; empty when all hold. Transactions in neither list may be read or not, but whole."""
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
    """One line for a breach of T5, where each transaction commits its own number as the group's offset."""
    last = max(committed, default=-1)
    return [] if offset == last else [f"T5 the group goes on from {offset}, the last commit was {last}"]
