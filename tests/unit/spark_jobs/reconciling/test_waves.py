"""The partitions of a wave, its waits, the listed findings; the text before a run; and judged waves
that survive as JSON.
"""

from __future__ import annotations

import json

import pytest

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.findings import Explanation, ExplanationKind, Finding, FindingKind
from spark_jobs.reconciling.core.judged_waves import JudgedWave, wave_of
from spark_jobs.reconciling.core.reading_plan import ReadingMode, Sizes, reading_plan
from spark_jobs.reconciling.core.verdict import (
    PartitionReport,
    RangeReport,
    ReconciliationReport,
    Side,
    SkippedPartition,
    Verdict,
)
from spark_jobs.reconciling.core.waves import FindingLimits, Load, PauseBounds, waves


def extent(topic: str, partition: int = 0, *, until: int = 100, source_start: int = 0, target_start: int = 0) -> Extent:
    return Extent(
        topic=topic,
        partition=partition,
        first_offset=max(source_start, target_start),
        source=LogEnds(start_offset=source_start, end_offset=until),
        target=LogEnds(start_offset=target_start, end_offset=until),
        source_until=until,
        target_until=until,
    )


def finding(topic: str, first_offset: int, kind: FindingKind = FindingKind.MISSING) -> Finding:
    return Finding(topic=topic, partition=0, kind=kind, first_offset=first_offset, last_offset=first_offset)


def test_waves_are_bounded_in_offsets_and_leave_out_what_is_judged() -> None:
    plan = [extent("a"), extent("b", until=50), extent("c", until=500), extent("d", until=0), extent("e")]
    found = waves(plan, offsets_max=150, judged={("b", 0)})
    assert [[one.topic for one in wave] for wave in found] == [["a"], ["c"], ["d", "e"]]
    assert waves(plan, offsets_max=1_000)[0] == plan
    assert waves([], offsets_max=1) == []


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (Load(lag_records=10, latency_ms=50), ""),
        (Load(lag_records=11, latency_ms=50), "lacks 11 records"),
        (Load(lag_records=0, latency_ms=51), "took 51 ms"),
    ],
)
def test_a_run_pauses_above_a_bound(load: Load, reason: str) -> None:
    said = PauseBounds(lag_records=10, latency_ms=50).reason(load)
    assert reason in said
    assert bool(said) == bool(reason)
    assert not PauseBounds().is_set
    assert PauseBounds().reason(load) == ""


def test_findings_are_limited_by_topic_and_in_all() -> None:
    found = [finding("a", 1), finding("a", 2), finding("b", 1), finding("c", 1)]
    assert FindingLimits().listed(found) == tuple(found)
    assert [one.topic for one in FindingLimits(per_topic=1).listed(found)] == ["a", "b", "c"]
    assert [one.topic for one in FindingLimits(per_topic=1, in_all=2).listed(found)] == ["a", "b"]
    assert FindingLimits(in_all=4).is_reached(found)
    assert not FindingLimits(in_all=5).is_reached(found)


def test_a_plan_says_what_is_read_in_which_way_and_what_is_left_out() -> None:
    plan = [extent("t", target_start=40), extent("t", 1), extent("compacted"), extent("empty", until=0)]
    sizes = Sizes(source={("t", 0): 1_000, ("t", 1): 500}, target={("t", 0): 600})
    by_topic = {
        one.topic: one
        for one in reading_plan(plan, sizes=sizes, sites=("a", "b"), compacted=["compacted"], judged=[("t", 1)])
    }
    read = by_topic["t"]
    assert (read.mode, read.partitions, read.offsets) == (ReadingMode.HEADERS, 2, 60)
    assert (read.source_bytes, read.target_bytes) == (600, 600)
    assert read.skipped == (
        "1 partitions are judged already",
        "partition 0: offsets 0 to 39 have expired at b",
    )
    assert by_topic["compacted"].mode is ReadingMode.RECORDS
    assert by_topic["empty"].skipped == ("partition 0: no records at either site",)
    quick = {
        one.topic: one
        for one in reading_plan(plan, sizes=sizes, sites=("a", "b"), compacted=["compacted"], is_quick=True)
    }
    assert (quick["t"].mode, quick["t"].source_bytes, quick["t"].target_bytes) == (ReadingMode.DIGESTS, 150, 150)
    assert (quick["compacted"].offsets, quick["compacted"].source_bytes) == (0, 0)
    assert "compacted" in quick["compacted"].skipped[0]


def wave() -> JudgedWave:
    side = Side(start_offset=0, end_offset=5, records=5, bytes=80, batches=1, digest="d")
    one = RangeReport(start_offset=0, source_records=5, target_records=5, source_digest="d", target_digest="d")
    partition = PartitionReport(
        topic="t", partition=0, source=side, target=side, is_equal=False, ranges=(one,), elapsed_ms=1_500
    )
    reason = Explanation(
        topic="t", partition=0, kind=ExplanationKind.EXPIRED, first_offset=0, last_offset=1, site="b", detail="later"
    )
    return JudgedWave(
        partitions=(partition,),
        findings=(finding("t", 3), finding("t", 4, FindingKind.CORRUPT)),
        explanations=(reason,),
        problems=("more",),
    )


def test_a_judged_wave_is_the_same_after_json() -> None:
    assert wave_of(json.loads(json.dumps(wave().as_document()))) == wave()
    with pytest.raises(ValueError, match="not a judged wave"):
        wave_of({"partitions": []})


def test_a_topic_is_a_line_and_a_run_that_left_partitions_out_proves_nothing() -> None:
    judged = wave()
    report = ReconciliationReport(
        source_site="a",
        target_site="b",
        started_at_ms=0,
        elapsed_ms=1,
        range_offsets=1,
        is_deep=False,
        partitions=judged.partitions,
        findings=judged.findings,
        explanations=judged.explanations,
        skipped=(SkippedPartition("u", 3, "the run ended before"),),
    )
    line, other = report.topics
    assert (line.topic, line.errors, line.differences, line.ranges, line.records_source) == ("t", 1, 1, 1, 5)
    assert (line.skipped, line.seconds) == (("expired offsets",), 1.5)
    assert other.skipped == ("partition 3: the run ended before",)
    assert report.verdict is Verdict.DIFFERENT
    document = report.as_document()
    assert document["skipped"] == [{"topic": "u", "partition": 3, "reason": "the run ended before"}]
    assert (
        ReconciliationReport(
            source_site="a",
            target_site="b",
            started_at_ms=0,
            elapsed_ms=1,
            range_offsets=1,
            is_deep=False,
            partitions=judged.partitions,
            findings=(),
            explanations=(),
            skipped=report.skipped,
        ).verdict
        is Verdict.NOT_COMPARED
    )
