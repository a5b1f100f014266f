"""The range that a run of the archive reads, and the start of the next one: no offset twice, none
lost without a hole that names it, nothing behind damage.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.archiving.core.archive_plan import RANGE_BYTES_MAX, ArchivePlan, Piece, Settlement, Stored, plan
from spark_jobs.archiving.core.claims import Claim, claim_of, ended_here, others, unchanged
from spark_jobs.archiving.core.manifest import (
    RECORDS,
    ArchivedFile,
    ArchivedRange,
    ArchivedTopic,
    Hole,
    LogId,
    LogStart,
    Manifest,
    archived_ends,
    by_log,
    chain_problems,
    manifest_of,
    without_expired,
)
from spark_jobs.archiving.core.restore_plan import refusals, restore_plan
from spark_jobs.archiving.core.restored_records import ArchivedRecord, headers_of
from spark_jobs.archiving.core.retention import expiry
from spark_jobs.logs.core.splits import LogEnds, Split

ID = "5f0c5c1e-8d3b-4f0e-9c55-0c8f3f1d2a01"
LOG = LogId(ID, 0)
ORDERS = ArchivedTopic(name="orders", topic_id=ID, partition_count=1, configs={})


def planned(start: int, end: int, position: int | None, *, cores: int = 1, log_bytes: int = 0) -> ArchivePlan:
    archived = {} if position is None else {LOG: position}
    ends = {("orders", 0): LogEnds(start_offset=start, end_offset=end)}
    return plan([ORDERS], ends, archived, lost={}, log_bytes={("orders", 0): log_bytes}, cores=cores)


def spans(found: ArchivePlan) -> list[tuple[int, int]]:
    return [(piece.split.first_offset, piece.split.until_offset) for piece in found.pieces]


def piece(first: int, until: int, *, is_compacted: bool = False) -> Piece:
    split = Split(site="", topic="orders", partition=0, first_offset=first, until_offset=until, is_first=first == 0)
    return Piece(ID, split, is_compacted)


def range_of(first: int, end: int, *, epoch: int = 0) -> ArchivedRange:
    file = ArchivedFile(path=f"batches/{first}", bytes=1, sha256="00")
    return ArchivedRange(
        topic="orders",
        topic_id=ID,
        partition=0,
        first_offset=first,
        end_offset=end,
        batches=1,
        records=end - first,
        leader_epochs=((epoch, first),),
        files=(file,),
    )


def hole(first: int, end: int) -> Hole:
    return Hole(topic="orders", topic_id=ID, partition=0, first_offset=first, end_offset=end)


def manifest(number: int, *ranges: ArchivedRange, holes: tuple[Hole, ...] = ()) -> Manifest:
    return Manifest(
        number=number,
        format="batches",
        started_at_ms=1,
        cluster_id="c",
        topics=(ORDERS,),
        ranges=ranges,
        holes=holes,
    )


def test_a_run_begins_where_the_log_or_the_archive_ends() -> None:
    assert spans(planned(5, 9, None)) == [(5, 9)]
    assert spans(planned(5, 9, 7)) == [(7, 9)]
    assert spans(planned(5, 9, 9)) == []


def test_records_that_expired_before_they_were_archived_are_a_hole() -> None:
    found = planned(5, 9, 3)
    assert (spans(found), found.holes) == ([(5, 9)], [hole(3, 5)])


def test_a_log_that_ends_before_the_archive_does_is_a_problem_and_not_read() -> None:
    found = planned(0, 9, 12)
    assert (spans(found), len(found.problems)) == ([], 1)


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 16), st.integers(0, 100))
def test_the_pieces_of_a_run_join_and_cover_everything(start: int, length: int, cores: int, ranges: int) -> None:
    found = spans(planned(start, start + length, None, cores=cores, log_bytes=ranges * RANGE_BYTES_MAX))
    assert sum(until - first for first, until in found) == length
    assert all(before[1] == after[0] for before, after in pairwise(found))


@given(st.integers(0, 1_000), st.integers(1, 1_000), st.integers(1, 64), st.integers(0, 999))
def test_a_range_has_at_most_its_number_of_bytes_or_one_offset(start: int, length: int, size: int, done: int) -> None:
    log_bytes = size * RANGE_BYTES_MAX // 4
    found = spans(planned(start, start + length, start + min(done, length), log_bytes=log_bytes))
    offset_bytes = log_bytes / length
    assert all((until - first) * offset_bytes <= max(RANGE_BYTES_MAX, offset_bytes) for first, until in found)


def test_large_records_are_divided_by_bytes_and_small_ones_by_offsets() -> None:
    assert len(spans(planned(0, 1_000, None, log_bytes=8 * RANGE_BYTES_MAX))) == 8
    assert spans(planned(0, 1_000, None, log_bytes=RANGE_BYTES_MAX)) == [(0, 1_000)]
    assert len(spans(planned(0, 100_000, None, log_bytes=1_000))) == 4


def test_ranges_join_although_a_batch_reaches_over_the_end_of_its_piece() -> None:
    found = Settlement().settled([(piece(10, 20), Stored(12, 20, 1, 8)), (piece(0, 10), Stored(0, 12, 3, 12))])
    assert [(one.first_offset, one.end_offset) for one in found.ranges] == [(0, 12), (12, 20)]
    assert found.holes == []


def test_a_piece_without_batches_is_a_hole_unless_the_topic_is_compacted() -> None:
    for is_compacted, holes in ((False, [hole(10, 20)]), (True, [])):
        results = [
            (piece(0, 10, is_compacted=is_compacted), Stored(0, 10, 1, 10)),
            (piece(10, 20, is_compacted=is_compacted), Stored()),
            (piece(20, 30, is_compacted=is_compacted), Stored(20, 30, 1, 10)),
        ]
        found = Settlement().settled(results)
        assert found.holes == holes
        runs = [manifest(1, *found.ranges, holes=tuple(found.holes))]
        assert (archived_ends(runs), chain_problems(runs)) == ({LOG: 30}, [])


def test_nothing_behind_damage_counts() -> None:
    found = Settlement().settled(
        [(piece(0, 10), Stored(0, 4, 1, 4, damaged_at=4)), (piece(10, 20), Stored(10, 20, 1, 10))]
    )
    assert [one.end_offset for one in found.ranges] == [4]
    assert "offset 4 is damaged" in found.problems[0]


def test_ranges_that_do_not_join_and_a_lost_manifest_are_named() -> None:
    assert len(chain_problems([manifest(1, range_of(0, 5)), manifest(3, range_of(6, 9))])) == 2
    assert chain_problems([manifest(1, range_of(0, 5)), manifest(2, range_of(6, 9), holes=(hole(5, 6),))]) == []


def test_a_manifest_survives_json_and_anything_else_is_refused() -> None:
    one = manifest(1, range_of(0, 5), holes=(hole(5, 6),))
    assert manifest_of(json.loads(json.dumps(one.as_document()))) == one
    with pytest.raises(ValueError, match="not a manifest"):
        manifest_of({"number": 1})
    document = json.loads(json.dumps(one.as_document()))
    document["run"] = document.pop("number")
    assert manifest_of(document) == one


def test_a_restored_log_begins_after_its_last_hole_and_what_is_left_out_is_named() -> None:
    runs = [manifest(1, range_of(0, 5, epoch=7)), manifest(2, range_of(6, 9, epoch=3), holes=(hole(5, 6),))]
    found = restore_plan(runs, lambda _: True)
    assert [(log.first_offset, log.end_offset, log.ranges) for log in found.logs] == [(6, 9, (("batches/6",),))]
    assert (len(found.skipped), found.highest_leader_epoch) == (1, 7)
    of_records = restore_plan([replace(run, format=RECORDS) for run in runs], lambda _: True)
    assert (of_records.skipped, [log.ranges for log in of_records.logs]) == ((), [(("batches/0",), ("batches/6",))])


def test_a_log_that_retention_emptied_before_the_last_run_is_restored_up_to_there() -> None:
    runs = [manifest(1, range_of(0, 5)), manifest(2, range_of(5, 9)), manifest(3, holes=(hole(9, 20), hole(20, 30)))]
    found = restore_plan(runs, lambda _: True)
    assert [(log.first_offset, log.end_offset) for log in found.logs] == [(0, 9)]
    assert found.skipped == ()
    inside = [manifest(1, range_of(0, 5)), manifest(2, range_of(5, 9), holes=(hole(6, 7),))]
    assert restore_plan(inside, lambda _: True).logs == ()


def test_a_topic_that_is_there_is_taken_only_when_it_is_empty_and_the_same() -> None:
    found = restore_plan([manifest(1, range_of(0, 5))], lambda _: True)

    def refused(offsets: int = 0, *, is_of_batches: bool = True, **fields: object) -> list[str]:
        there = {"orders": replace(ORDERS, **fields)}  # type: ignore[arg-type]
        return refusals(found, there, {"orders": offsets}, is_of_batches=is_of_batches)

    assert refusals(found, {}, {}, is_of_batches=True) == refused() == []
    assert "not empty" in refused(1)[0]
    assert "another topic id" in refused(topic_id="other")[0]
    assert refused(topic_id="other", is_of_batches=False) == []
    assert "exists at the site with 0 partitions" in refused(partition_count=0)[0]


def test_a_restored_record_names_its_first_place() -> None:
    record = ArchivedRecord(7, 1_000, b"k", b"v", [("own", None)])
    added = headers_of("orders", 2, record)
    assert added == (
        ("own", None),
        ("antipode.restored.topic", b"orders"),
        ("antipode.restored.partition", b"2"),
        ("antipode.restored.offset", b"7"),
        ("antipode.restored.timestamp", b"1000"),
    )
    assert headers_of("copy", 0, record._replace(offset=9, headers=added)) == added


def test_retention_takes_whole_ranges_from_the_start_of_each_log() -> None:
    manifests = [
        replace(manifest(number, range_of(10 * number, 10 * number + 10)), started_at_ms=1_000 * number)
        for number in range(1, 5)
    ]
    by_age = expiry(manifests, archived_before_ms=3_000)
    assert ([one.first_offset for one in by_age.ranges], by_age.bytes) == ([10, 20], 2)
    assert [(one.log, one.start_offset) for one in by_age.starts] == [(LOG, 30)]
    assert [one.first_offset for one in expiry(manifests, bytes_max=1).ranges] == [10, 20, 30]
    assert [one.first_offset for one in expiry(manifests, archived_before_ms=3_000, bytes_max=1).ranges] == [10, 20, 30]
    assert expiry(manifests).ranges == ()
    after = without_expired([*manifests, replace(manifest(5), log_starts=by_age.starts)])
    assert [one.first_offset for one in by_log(after)[LOG]] == [30, 40]
    assert (archived_ends(after), chain_problems(after)) == ({LOG: 50}, [])
    assert manifest_of(json.loads(json.dumps(after[-1].as_document()))) == after[-1]


def test_a_compacted_topic_keeps_all_and_says_so() -> None:
    compacted = replace(ORDERS, configs={"cleanup.policy": "compact"})
    found = expiry([replace(manifest(1, range_of(0, 9)), topics=(compacted,))], archived_before_ms=9, bytes_max=0)
    assert (found.ranges, found.kept_compacted) == ((), ("orders",))


def test_an_archive_whose_ranges_are_all_let_go_goes_on_behind_them() -> None:
    start = LogStart(topic="orders", topic_id=ID, partition=0, start_offset=9)
    after = without_expired([manifest(1, range_of(0, 9)), replace(manifest(2), log_starts=(start,))])
    assert (by_log(after), archived_ends(after)) == ({}, {LOG: 9})


def test_a_claim_is_dead_when_its_process_ended_here_or_it_is_not_renewed() -> None:
    own = Claim(claim_id="own", host="here", pid=1, process_started_ticks=5)
    other = replace(own, claim_id="other")
    assert others([own, other], own) == [other]
    assert ended_here(other, own_host="here", is_running=lambda *_: False)
    assert not ended_here(other, own_host="here", is_running=lambda pid, started: (pid, started) == (1, 5))
    assert not ended_here(other, own_host="away", is_running=lambda *_: False)
    renewed = replace(other, renewals=1)
    assert unchanged([own, other], [own, renewed]) == [own]
    assert claim_of(json.loads(json.dumps(own.as_document()))) == own
    with pytest.raises(ValueError, match="not a claim"):
        claim_of({"pid": 1})
