"""Anomalies in what clients saw, after Jepsen's checkers for Kafka: each function returns what it
found, empty when all is well.

    A1  inconsistent offsets one offset, two values (also across sites: the strongest test that
        offsets are kept)
    A3  unseen                 acknowledged, never read by the end
    A4  duplicates             one value at two offsets
    A7  skips                  a consumer jumps over existing offsets without a new assignment
    A8  steps back             a consumer goes back without a new assignment
    A9  send order             acknowledged offsets of one load's sends to a partition do not grow
    A12 slow catch-up          the time from the end of a fault until its consumers have caught up
    A13 redelivered            a group receives a value that it had already received

A7 needs to know which offsets hold records (`existing`): compaction and control records leave holes
that are no skips.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dr.drill.core.history import Acknowledged, Delivered, LogRecord
from wire.protocol.ids import TopicPartition


class Anomaly(NamedTuple):
    """One finding: which rule, where, and the values or offsets that show it."""

    rule: str
    place: TopicPartition
    offset: int
    detail: str


class CatchUp(NamedTuple):
    """The record that a consumer received last after a fault had ended, of those acknowledged
    before its end; the duration is infinite if it was never delivered.
    """

    healed_at_ms: float
    place: TopicPartition
    offset: int
    duration_ms: float


class _Seen(NamedTuple):
    place: TopicPartition
    offset: int
    value: str


def _sightings(
    acknowledged: Iterable[Acknowledged], delivered: Iterable[Delivered], logs: Iterable[LogRecord]
) -> Iterable[_Seen]:
    for ack in acknowledged:
        yield _Seen(TopicPartition(ack.topic, ack.partition), ack.offset, ack.value)
    for given in delivered:
        yield _Seen(TopicPartition(given.topic, given.partition), given.offset, given.value)
    for found in logs:
        yield _Seen(TopicPartition(found.topic, found.partition), found.offset, found.value)


def inconsistent_offsets(
    acknowledged: Iterable[Acknowledged], delivered: Iterable[Delivered], logs: Iterable[LogRecord] = ()
) -> list[Anomaly]:
    """A1, over all records that any client saw at any site."""
    first: dict[tuple[TopicPartition, int], str] = {}
    found: dict[tuple[TopicPartition, int], set[str]] = {}
    for place, offset, value in _sightings(acknowledged, delivered, logs):
        known = first.setdefault((place, offset), value)
        if known != value:
            found.setdefault((place, offset), {known}).add(value)
    return [
        Anomaly("A1", place, offset, " and ".join(sorted(values))) for (place, offset), values in sorted(found.items())
    ]


def unseen(acknowledged: Iterable[Acknowledged], read: Collection[LogRecord]) -> list[Anomaly]:
    """A3: acknowledged records that are not in the log at all."""
    # By value and not by offset: at this offset the log may have another record.
    values = {record.value for record in read}
    return [
        Anomaly("A3", TopicPartition(ack.topic, ack.partition), ack.offset, ack.value)
        for ack in acknowledged
        if ack.value not in values
    ]


def duplicates(read: Iterable[LogRecord]) -> list[Anomaly]:
    """A4: values that occur twice in one site's log."""
    places: dict[tuple[str, str], list[tuple[TopicPartition, int]]] = defaultdict(list)
    for record in read:
        places[record.site, record.value].append((TopicPartition(record.topic, record.partition), record.offset))
    return [
        Anomaly("A4", *spots[0], f"{value} also at {', '.join(f'{place}@{offset}' for place, offset in spots[1:4])}")
        for (_, value), spots in sorted(places.items())
        if len(spots) > 1
    ]


def skips(delivered: Iterable[Delivered], existing: Mapping[TopicPartition, Sequence[int]]) -> list[Anomaly]:
    """A7: consumers that jumped over offsets; `existing` holds the sorted offsets that have
    records.
    """
    found = []
    for place, before, after in _consecutive(delivered):
        offsets = existing.get(place, ())
        passed = bisect_left(offsets, after.offset) - bisect_right(offsets, before.offset)
        if passed > 0:
            found.append(
                Anomaly("A7", place, before.offset, f"{after.member} continued at {after.offset}, past {passed}")
            )
    return found


def steps_back(delivered: Iterable[Delivered]) -> list[Anomaly]:
    """A8: consumers that went back without a new assignment."""
    return [
        Anomaly("A8", place, before.offset, f"{after.member} went back to {after.offset}")
        for place, before, after in _consecutive(delivered)
        if after.offset <= before.offset
    ]


def _consecutive(delivered: Iterable[Delivered]) -> Iterable[tuple[TopicPartition, Delivered, Delivered]]:
    last: dict[tuple[str, int, str, int], Delivered] = {}
    for given in delivered:
        key = (given.member, given.assignment, given.topic, given.partition)
        before = last.get(key)
        if before is not None:
            yield TopicPartition(given.topic, given.partition), before, given
        last[key] = given


def send_order(acknowledged: Iterable[Acknowledged]) -> list[Anomaly]:
    """A9: a later send of the same load to the same partition must be at a higher offset."""
    by_load: dict[tuple[str, TopicPartition], list[Acknowledged]] = defaultdict(list)
    for ack in acknowledged:
        by_load[ack.load, TopicPartition(ack.topic, ack.partition)].append(ack)
    found = []
    for (_, place), acks in sorted(by_load.items()):
        # By number: acknowledgements of different connections arrive in any order.
        acks.sort(key=lambda ack: ack.number)
        for before, after in itertools.pairwise(acks):
            if after.offset <= before.offset:
                found.append(
                    Anomaly("A9", place, after.offset, f"{after.value} is not after {before.value}@{before.offset}")
                )
    return found


def redelivered(delivered: Iterable[Delivered]) -> int:
    """A13: deliveries of values that the group had already received."""
    counts: dict[str, int] = defaultdict(int)
    for given in delivered:
        counts[given.value] += 1
    return sum(count - 1 for count in counts.values())


def never_delivered(acknowledged: Iterable[Acknowledged], delivered: Iterable[Delivered]) -> list[Anomaly]:
    """Acknowledged records that no member of the group received."""
    values = {given.value for given in delivered}
    return [
        Anomaly("A3", TopicPartition(ack.topic, ack.partition), ack.offset, ack.value)
        for ack in acknowledged
        if ack.value not in values
    ]


def slowest_catch_up(
    acknowledged: Iterable[Acknowledged], delivered: Iterable[Delivered], healed_at_ms: Sequence[float]
) -> CatchUp | None:
    """A12: of all records that were acknowledged before a fault ended, the one whose delivery took
    longest from the end of that fault; None if no fault ended after a record.
    """
    first = _first_deliveries_ms(delivered)
    slowest: CatchUp | None = None
    for ack in acknowledged:
        given_at_ms = first.get(ack.value)
        for healed in healed_at_ms:
            if ack.acknowledged_at_ms > healed:
                continue
            duration_ms = math.inf if given_at_ms is None else max(given_at_ms - healed, 0.0)
            if slowest is None or duration_ms > slowest.duration_ms:
                slowest = CatchUp(healed, TopicPartition(ack.topic, ack.partition), ack.offset, duration_ms)
    return slowest


def _first_deliveries_ms(delivered: Iterable[Delivered]) -> Mapping[str, float]:
    first: dict[str, float] = {}
    for given in delivered:
        first[given.value] = min(first.get(given.value, given.at_ms), given.at_ms)
    return first
