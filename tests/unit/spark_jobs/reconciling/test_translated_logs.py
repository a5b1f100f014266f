"""One partition of a translate link at both ends. Promised: exactly the planted defects are named
by their offsets; records that a link leaves out for a reason are explained and are not findings.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pytest

from spark_jobs.reconciling.core.translated_logs import (
    NO_BOUND,
    BatchSpan,
    MirroredRun,
    PlacedRecord,
    Transactions,
    TranslatedJudgement,
    TranslatedLog,
    transactions_of,
)
from spark_jobs.reconciling.core.translated_merge import judged
from spark_jobs.reconciling.core.waiting_records import MemoryRecords, WaitingRecord
from spark_jobs.reconciling.spilled_records import SpilledRecords

COUNT: Final = 20
SHIFT: Final = 100
"""The target's offset of the source's offset 0."""
LINK: Final = 7
CLIENT: Final = 9
RUN: Final = (MirroredRun(0, SHIFT, COUNT),)
Log = list[PlacedRecord]


def record(offset: int, number: int | None = None, producer_id: int = -1) -> PlacedRecord:
    """The record with this number (that of its offset unless given)."""
    what = offset if number is None else number
    return PlacedRecord(offset, b"key-%d" % what, b"content-%d" % what, 1_000 + what, producer_id)


def copies() -> Log:
    """The records that the link writes for `COUNT` records of the source."""
    return [record(SHIFT + number, number, LINK) for number in range(COUNT)]


def compare(
    target: Sequence[PlacedRecord], *, runs: Sequence[MirroredRun] = RUN, **fields: object
) -> TranslatedJudgement:
    given: dict[str, object] = {"own_producers": {LINK}, **fields}
    source: Log = given.pop("source", [record(number) for number in range(COUNT)])  # type: ignore[assignment]
    log = TranslatedLog(
        topic="t",
        partition=0,
        runs=runs,
        **{"has_times": all(one.timestamp_ms is not None for one in (*source, *target)), **given},  # type: ignore[arg-type]
    )
    judgement, spilled = (
        judged(log, source.__iter__, target.__iter__, records) for records in (MemoryRecords, lambda: SpilledRecords(2))
    )
    assert (found(spilled), explained(spilled)) == (found(judgement), explained(judgement))
    return judgement


def transactions(*spans: tuple[int, str], surveyed_until: int = NO_BOUND) -> Transactions:
    """The transactions after these steps of one producer. A step is an offset and the kind of
    batch.
    """
    batches = (BatchSpan(offset, offset, CLIENT, True, kind != "records", kind == "commit") for offset, kind in spans)
    return transactions_of(batches, surveyed_until)


def found(judgement: TranslatedJudgement) -> list[tuple[str, int, int]]:
    return [(str(one.kind), one.first_offset, one.last_offset) for one in judgement.findings("t", 0)]


def explained(judgement: TranslatedJudgement) -> list[tuple[str, str, int, int]]:
    lines = judgement.explanations("t", 0, {"source": "a", "target": "b"})
    return sorted((str(one.kind), one.site, one.first_offset, one.last_offset) for one in lines)


def missing(log: Log) -> Log:
    return [one for one in log if one.offset not in (SHIFT + 4, SHIFT + 5)]


def twice(log: Log) -> Log:
    return [*log, record(SHIFT + COUNT, 3, LINK)]


def swapped(log: Log) -> Log:
    log[4], log[5] = log[5]._replace(offset=SHIFT + 4), log[4]._replace(offset=SHIFT + 5)
    return log


def changed_byte(log: Log) -> Log:
    log[6] = log[6]._replace(content=b"content-~")
    return log


def wrong_time(log: Log) -> Log:
    log[6] = log[6]._replace(timestamp_ms=5)
    return log


def shifted(log: Log) -> Log:
    """From record 15 on, everything lies one offset later."""
    return [*log[:15], *(one._replace(offset=one.offset + 1) for one in log[15:])]


def extra(log: Log) -> Log:
    return [*log, record(SHIFT + COUNT, 77, LINK)]


DEFECTS: Final[Mapping[Callable[[Log], Log], list[tuple[str, int, int]]]] = {
    missing: [("missing", 4, 5)],
    twice: [("duplicate", 120, 120)],
    swapped: [("diverged", 4, 5)],
    changed_byte: [("diverged", 6, 6)],
    wrong_time: [("diverged", 6, 6)],
    shifted: [("missing", 15, 15), ("diverged", 16, 19), ("duplicate", 120, 120)],
    extra: [("extra", 120, 120)],
}


def test_equal_ends_are_equal_by_map_and_by_content() -> None:
    for runs in (RUN, ()):
        judgement = compare(copies(), runs=runs)
        assert (found(judgement), explained(judgement)) == ([], [])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.__name__)
def test_a_planted_defect_is_named_by_its_offsets_and_nothing_else(defect: Callable[[Log], Log]) -> None:
    judgement = compare(defect(copies()))
    assert (found(judgement), explained(judgement)) == (DEFECTS[defect], [])


@pytest.mark.parametrize(
    ("defect", "expected"),
    [
        (missing, [("missing", 4, 5)]),
        (twice, [("duplicate", 120, 120)]),
        (swapped, [("diverged", 5, 5)]),
        (changed_byte, [("missing", 6, 6), ("extra", 106, 106)]),
        (wrong_time, [("missing", 6, 6), ("duplicate", 106, 106)]),
        (shifted, []),
        (extra, [("extra", 120, 120)]),
    ],
)
def test_without_a_map_contents_and_their_order_are_compared(
    defect: Callable[[Log], Log], expected: list[tuple[str, int, int]]
) -> None:
    assert found(compare(defect(copies()), runs=())) == expected


def test_markers_and_transactions_that_are_not_committed_are_explained() -> None:
    source = [
        record(0, 0, CLIENT),
        PlacedRecord(1, None, b"", producer_id=CLIENT, is_marker=True),
        record(2, 2, CLIENT),
        PlacedRecord(3, None, b"", producer_id=CLIENT, is_marker=True),
        record(4),
        record(5, 2, CLIENT),  # its transaction is open
    ]
    open_or_aborted = transactions((0, "records"), (1, "commit"), (2, "records"), (3, "abort"), (5, "records"))
    runs = (MirroredRun(0, SHIFT, 1), MirroredRun(4, SHIFT + 1, 1))
    judgement = compare(
        [record(SHIFT, 0, LINK), record(SHIFT + 1, 4, LINK)],
        runs=runs,
        source=source,
        source_uncommitted=open_or_aborted.uncommitted,
        has_times=True,
    )
    assert found(judgement) == []
    assert explained(judgement) == [("marker", "a", 1, 3), ("uncommitted", "a", 2, 5)]


def test_records_that_came_from_the_target_and_those_of_its_own_clients_are_no_difference() -> None:
    own = [record(200, 50, CLIENT), record(201, 51, CLIENT)]
    source = [record(0), record(1, 50, producer_id=8), record(2)]
    runs = (MirroredRun(0, SHIFT, 1), MirroredRun(2, SHIFT + 1, 1))
    target = [record(SHIFT, 0, LINK), record(SHIFT + 1, 2, LINK), *own]
    judgement = compare(target, runs=runs, source=source)
    assert found(judgement) == []
    assert explained(judgement) == [("local", "b", 201, 201), ("returned", "a", 1, 1)]


def test_a_record_that_the_map_leaves_out_without_a_reason_is_missing() -> None:
    runs = (MirroredRun(0, SHIFT, 3), MirroredRun(4, SHIFT + 3, COUNT - 4))
    target = [record(SHIFT + place, number, LINK) for place, number in enumerate([*range(3), *range(4, COUNT)])]
    assert found(compare(target, runs=runs)) == [("missing", 3, 3)]


def test_records_that_retention_and_compaction_have_removed_at_one_end_are_explained() -> None:
    judgement = compare(copies()[3:], target_start=SHIFT + 3)
    assert (found(judgement), explained(judgement)) == ([], [("expired", "b", 100, 102)])
    judgement = compare(copies(), source=[record(number) for number in range(4, COUNT)], source_start=4)
    assert (found(judgement), explained(judgement)) == ([], [("expired", "a", 0, 3)])
    source = [record(0, 1), *(record(number) for number in range(1, COUNT))]
    judgement = compare(copies()[1:], source=source, is_compacted=True)
    assert (found(judgement), explained(judgement)) == ([], [("compacted", "b", 100, 100)])
    judgement = compare(copies(), source=source[1:], is_compacted=True)
    assert (found(judgement), explained(judgement)) == ([], [("compacted", "a", 0, 0)])


def test_the_brokers_own_timestamps_at_one_end_are_no_difference() -> None:
    target = [one._replace(timestamp_ms=None) for one in copies()]
    assert found(compare(target)) == found(compare(target, runs=())) == []


def test_records_that_are_not_noted_yet_are_compared_by_content() -> None:
    runs = (MirroredRun(0, SHIFT, 12),)
    assert found(compare(copies(), runs=runs)) == []
    assert found(compare(copies()[:18], runs=runs)) == [("missing", 18, 19)]


@pytest.mark.parametrize("runs", [RUN, ()])
def test_nothing_behind_the_bounds_is_judged(runs: Sequence[MirroredRun]) -> None:
    late = [one for one in copies() if one.offset < SHIFT + 15]
    assert found(compare(late, runs=runs)) == [("missing", 15, 19)]
    assert found(compare(late, runs=runs, source_until=15, target_until=SHIFT + 15)) == []
    assert found(compare(late, runs=runs, source_until=17, target_until=SHIFT + 17)) == [("missing", 15, 16)]
    extra = [*copies(), record(SHIFT + COUNT, 99, LINK)]
    assert found(compare(extra, runs=runs, target_until=SHIFT + COUNT)) == []


@pytest.mark.parametrize("runs", [RUN, ()])
def test_copies_of_records_behind_the_bound_are_no_duplicates(runs: Sequence[MirroredRun]) -> None:
    again = [*(record(number) for number in range(15)), *(record(15 + number, number) for number in range(5))]
    copied = [one._replace(offset=SHIFT + one.offset, producer_id=LINK) for one in again]
    judgement = compare(copied, runs=runs, source=again, source_until=15, target_until=SHIFT + COUNT)
    assert (found(judgement), explained(judgement)) == ([], [])


def test_a_transaction_that_ends_behind_the_bound_is_committed() -> None:
    log = [record(0, 0, CLIENT), record(1), record(2, 2, CLIENT)._replace(is_marker=True)]
    committed = transactions((0, "records"), (2, "commit")).uncommitted
    given = {"source": log, "source_until": 1, "source_uncommitted": committed}
    copied = [record(SHIFT, 0, LINK), record(SHIFT + 1, 1, LINK)]
    judgement = compare(copied, runs=[MirroredRun(0, SHIFT, 2)], **given)
    assert (found(judgement), explained(judgement)) == ([], [])
    assert found(compare([], runs=[MirroredRun(0, SHIFT, 2)], **given)) == [("missing", 0, 0)]


@pytest.mark.parametrize("runs", [[MirroredRun(0, SHIFT, 2)], ()])
def test_a_transaction_that_ends_while_the_logs_are_compared_may_be_mirrored_or_not(
    runs: Sequence[MirroredRun],
) -> None:
    log = [record(0, 0, CLIENT), record(1), record(2, 2, CLIENT)._replace(is_marker=True)]
    kept = transactions((0, "records"), (2, "commit"), surveyed_until=2)
    given = {"source": log, "source_until": 2, "source_uncommitted": kept.uncommitted}
    given["source_open_at_survey"] = kept.open_at_survey
    copied = [record(SHIFT, 0, LINK), record(SHIFT + 1, 1, LINK)]
    for target in (copied, copied[1:]):
        judgement = compare(target, runs=runs, **given)
        assert (found(judgement), explained(judgement)) == ([], [])
    assert found(compare([], runs=runs, **given)) == [("missing", 1, 1)]


EACH_END: Final = 30_000
MIB: Final = 1024 * 1024


def peak_bytes(log: TranslatedLog, source: range, target: range) -> int:
    """The most memory that a comparison takes; both logs are made while they are read."""

    def read(offsets: range, shift: int) -> Iterator[PlacedRecord]:
        return (record(offset + shift, offset, LINK if shift else -1) for offset in offsets)

    tracemalloc.start()
    try:
        judgement = judged(log, lambda: read(source, 0), lambda: read(target, SHIFT), lambda: SpilledRecords(1_000))
        assert bool(judgement.faults) == (source != target)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("has_map", [True, False])
@pytest.mark.parametrize("has_target", [True, False])
def test_memory_holds_pieces_of_both_logs(has_map: bool, has_target: bool) -> None:
    """Also where the target has nothing, and everything waits for an equal record."""
    runs = (MirroredRun(0, SHIFT, EACH_END),) if has_map else ()
    log = TranslatedLog(topic="t", partition=0, runs=runs, own_producers={LINK})
    assert peak_bytes(log, range(EACH_END), range(EACH_END if has_target else 0)) < 4 * MIB


def test_records_far_from_their_place_are_matched() -> None:
    """The target begins with records of others, so all records wait until half of it is read."""
    source = [record(offset) for offset in range(EACH_END)]
    others = [record(offset, EACH_END + offset) for offset in range(EACH_END)]
    copied = [record(EACH_END + offset, offset) for offset in range(EACH_END)]
    judgement = judged(
        TranslatedLog(topic="t", partition=0),
        source.__iter__,
        [*others, *copied].__iter__,
        lambda: SpilledRecords(1_000),
    )
    assert found(judgement) == [("extra", 0, EACH_END - 1)]


def test_equal_records_wait_in_their_order() -> None:
    for waiting in (MemoryRecords(), SpilledRecords(2)):
        given = [WaitingRecord(offset, b"same", 0, b"key", LINK) for offset in range(5)]
        for one in given:
            waiting.put(one)
        assert waiting.take(b"other", 0) is None
        assert [waiting.take(b"same", 0) for _ in range(2)] == given[:2]
        assert len(waiting) == 3
        waiting.mark(b"same", b"key", 3)
        waiting.mark(b"other", b"other", 9)
        assert list(waiting.drain()) == [(given[2], True, True), (given[3], True, False), (given[4], True, False)]
        assert len(waiting) == 0
