"""Makes a batch of the sink visible as a whole or not at all: tasks write in transactions that they
leave open, the driver decides, then all are committed. Pure.

The decision is kept as metadata of an offset of a group that is named after the query, since a
transaction can hold offsets, and links carry them. Metadata is bounded (Kafka's
offset.metadata.max.bytes, 4,096), so a decision about many tasks takes several groups.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

TASKS_PER_GROUP: Final = 100


class BatchNotWhole(ValueError):
    """A decided batch can only be made visible in part."""


class LaterBatchDecided(ValueError):
    """A batch comes after a later one: the query has an older checkpoint, or a new one."""


class TaskTransaction(NamedTuple):
    """The open transaction of a task."""

    task: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The transactions of a batch, all of which must be committed, even if the query fails in the
    meantime; `is_carried_out` once they are. `others` are the last transactions of tasks that have
    no rows in this batch. `producer_id` is the query's at the site that decided, -1 in decisions of
    earlier releases. `strays`: groups cross a link one by one, so after a failover some may hold a
    part of another batch's decision, or none (batch -1).
    """

    batch: int
    transactions: tuple[TaskTransaction, ...] = ()
    others: tuple[TaskTransaction, ...] = ()
    producer_id: int = -1
    decided_ms: int = 0
    is_carried_out: bool = False
    strays: tuple[Decision, ...] = ()

    def last_of(self, task: int) -> TaskTransaction | None:
        """The last transaction of a task."""
        return next((one for one in (*self.transactions, *self.others) if one.task == task), None)

    def part_about(self, task: int) -> Decision:
        """The part that has, or would have, the task's last transaction: the newest one that names
        it, or else the oldest of all.
        """
        parts = sorted((self, *self.strays), key=lambda part: part.batch)
        return next((part for part in reversed(parts) if part.last_of(task) is not None), parts[0])

    def others_than(self, transactions: Iterable[TaskTransaction]) -> tuple[TaskTransaction, ...]:
        """The last transactions of all tasks but those of these transactions."""
        done = {one.task for one in transactions}
        parts = sorted((self, *self.strays), key=lambda part: part.batch)
        last = {one.task: one for part in parts for one in (*part.others, *part.transactions)}
        return tuple(one for task, one in last.items() if task not in done)


class Outcome(enum.Enum):
    """The outcome of a transaction that was to be committed."""

    COMMITTED = "committed"
    """Committed now or before."""
    ABORTED = "aborted"
    """The brokers aborted the transaction before."""
    UNKNOWN = "unknown"
    """The coordinator does not know this transaction: it ended at another site, or long ago."""


class Ended(NamedTuple):
    """A transaction of a decision, and its outcome."""

    transaction: TaskTransaction
    outcome: Outcome


def group_name(query: str, number: int) -> str:
    """The group that holds a part of the query's decision."""
    return f"antipode-spark.{query}" + (f".decision-{number}" if number else "")


def transactional_id(query: str, task: int | None) -> str:
    """The transactional id of a task; None: of the query's decisions."""
    return f"antipode-spark.{query}" + ("" if task is None else f".{task}")


def encoded(decision: Decision) -> list[str]:
    """The metadata of each group."""
    rows = [*((True, one) for one in decision.transactions), *((False, one) for one in decision.others)]
    parts = [rows[at : at + TASKS_PER_GROUP] for at in range(0, max(1, len(rows)), TASKS_PER_GROUP)]
    common = {"batch": decision.batch, "groups": len(parts), "producer": decision.producer_id}
    common |= {"decided_ms": decision.decided_ms, "is_carried_out": decision.is_carried_out}
    return [
        json.dumps(
            {
                **common,
                "transactions": [one for is_own, one in part if is_own],
                "others": [one for is_own, one in part if not is_own],
            },
            separators=(",", ":"),
        )
        for part in parts
    ]


def newest(texts: Iterable[str | None]) -> tuple[Decision, int] | None:
    """The part of the newest decision among a group's metadata, and how many groups hold it."""
    found = []
    for text in texts:
        try:
            values = json.loads(text or "")
            part = Decision(
                batch=int(values["batch"]),
                transactions=_transactions(values["transactions"]),
                others=_transactions(values.get("others", ())),
                producer_id=int(values.get("producer", -1)),
                decided_ms=int(values.get("decided_ms", 0)),
                is_carried_out=bool(values.get("is_carried_out")),
            )
            found.append((part, int(values["groups"])))
        except (ValueError, KeyError, TypeError):
            continue
    # Two sites may have decided the same batch, each with the offset of another partition.
    return max(found, key=lambda one: (one[0].batch, one[0].decided_ms, one[0].is_carried_out), default=None)


def joined(first: Decision, others: Sequence[Decision | None]) -> Decision:
    """The decision whose first part this is, from the parts of the other groups; None: a group has
    none.
    """
    made = (first.batch, first.producer_id, first.decided_ms)
    own, strays = [first], list[Decision]()
    for part in (part or Decision(batch=-1) for part in others):
        is_own = (part.batch, part.producer_id, part.decided_ms) == made
        (own if is_own else strays).append(part)
    return replace(
        first,
        transactions=tuple(one for part in own for one in part.transactions),
        others=tuple(one for part in own for one in part.others),
        strays=tuple(strays),
    )


def _transactions(values: Iterable[Sequence[int]]) -> tuple[TaskTransaction, ...]:
    return tuple(TaskTransaction(*map(int, one)) for one in values)


def is_decided(earlier: Decision | None, *, query: str, batch: int) -> bool:
    """True if the newest decision is about this batch, so that it is not written again. Raises
    LaterBatchDecided if it is about a later one: Spark repeats no batch but its last one, so these
    rows are others than those of the earlier batch with this number.
    """
    if earlier is not None and earlier.batch > batch:
        raise LaterBatchDecided(
            f"batch {batch} of query {query} comes after batch {earlier.batch}, which is written: the checkpoint is an "
            "older or a new one. Accepted: the checkpoint with which that batch was written, or another name "
            "(antipode.query). To write all batches from here on, perhaps a second time, delete the offsets of group "
            f"{group_name(query, 0)}"
        )
    return earlier is not None and earlier.batch == batch


def is_void(ends: Sequence[Ended], *, query: str, batch: int) -> bool:
    """Return True if nothing of a decision became visible after it was carried out again, so that
    the batch may be written anew. BatchNotWhole when only a part did, or may have.
    """
    lost = [end for end in ends if end.outcome is not Outcome.COMMITTED]
    if not lost or all(end.outcome is Outcome.ABORTED for end in ends):
        return bool(lost)
    tasks = ", ".join(f"{end.transaction.task} ({end.outcome.value})" for end in lost)
    raise BatchNotWhole(
        f"batch {batch} of query {query} was decided, but these of its {len(ends)} transactions could not be "
        f"committed: {tasks}. Brokers abort them after kafka.transaction.timeout.ms, and a failover in that moment "
        f"does. Accepted: delete the offsets of group {group_name(query, 0)}; then the batch is written again, and "
        "rows of committed tasks are there twice"
    )


def check_time(begun_ms: Mapping[int, int], *, now_ms: int, timeout_ms: int) -> None:
    """BatchNotWhole before a decision when transactions are so old that brokers may abort them."""
    oldest_ms = now_ms - min(begun_ms.values(), default=now_ms)
    if oldest_ms * 10 > timeout_ms * 9:
        raise BatchNotWhole(
            f"the batch took {oldest_ms} ms to write, and kafka.transaction.timeout.ms is {timeout_ms}. Accepted: a "
            "longer one, up to transaction.max.timeout.ms of the brokers, or a smaller maxOffsetsPerTrigger"
        )
