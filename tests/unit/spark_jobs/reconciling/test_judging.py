"""The meaning of collected rows, without Spark: defects, differences, records in other batches,
compaction, and retention during a run.
"""

from __future__ import annotations

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.findings import ExplanationKind, FindingKind
from spark_jobs.reconciling.core.judging import (
    CORRUPT,
    ONLY_SOURCE,
    ONLY_TARGET,
    OVERLAPPING,
    REPEATED,
    Judgement,
    Run,
    narrowed,
)


def judgement() -> Judgement:
    return Judgement(source_site="a", target_site="b")


def extent(partition: int = 0, *, first: int = 0, until: int = 100) -> Extent:
    ends = LogEnds(start_offset=first, end_offset=until)
    return Extent(
        topic="t",
        partition=partition,
        first_offset=first,
        source=ends,
        target=ends,
        source_until=until,
        target_until=until,
    )


def found(judged: Judgement) -> list[tuple[FindingKind, int, int, str]]:
    return [(one.kind, one.first_offset, one.last_offset, one.site) for one in judged.findings]


def explained(judged: Judgement) -> list[tuple[ExplanationKind, int, int, str]]:
    return [(one.kind, one.first_offset, one.last_offset, one.site) for one in judged.explanations]


def test_corruption_and_overlaps_are_findings_at_their_site() -> None:
    judged = judgement()
    judged.judge_defects([Run("t", 0, CORRUPT, 5, 9, site="a"), Run("t", 0, OVERLAPPING, 7, 8, site="b")])
    assert found(judged) == [(FindingKind.CORRUPT, 5, 9, "a"), (FindingKind.DUPLICATE, 7, 8, "b")]
    assert not judged.explanations


def test_a_batch_repeated_at_both_sites_alike_is_its_producers_doing() -> None:
    judged = judgement()
    both = [Run("t", 0, REPEATED, 10, 19, site=site) for site in ("b", "a")]
    judged.judge_defects([*both, Run("t", 1, REPEATED, 10, 19, site="b")])
    assert explained(judged) == [(ExplanationKind.REPEATED, 10, 19, "both")]
    assert found(judged) == [(FindingKind.DUPLICATE, 10, 19, "b")]


def test_runs_at_one_site_are_missing_or_extra_and_where_they_overlap_diverged() -> None:
    judged = judgement()
    judged.judge_differences([Run("t", 0, ONLY_SOURCE, 0, 9), Run("t", 0, ONLY_TARGET, 5, 14)])
    assert found(judged) == [
        (FindingKind.MISSING, 0, 4, ""),
        (FindingKind.DIVERGED, 5, 9, ""),
        (FindingKind.EXTRA, 10, 14, ""),
    ]
    assert judged.is_faulty("t", 0)
    assert not judged.is_faulty("t", 1)


def test_opened_batches_with_equal_records_are_explained() -> None:
    judged = judgement()
    judged.judge_opened([extent(0, first=20, until=30), extent(1)], [Run("t", 1, ONLY_SOURCE, 3, 3)])
    assert explained(judged) == [(ExplanationKind.REBATCHED, 20, 29, "both")]
    assert found(judged) == [(FindingKind.MISSING, 3, 3, "")]


def test_compaction_is_explained_at_the_site_that_has_cleaned() -> None:
    judged = judgement()
    judged.explain_compaction([Run("t", 0, ONLY_SOURCE, 0, 4, records=3), Run("t", 0, ONLY_TARGET, 5, 5, records=1)])
    assert explained(judged) == [(ExplanationKind.COMPACTED, 0, 4, "b"), (ExplanationKind.COMPACTED, 5, 5, "a")]
    assert judged.explanations[0].detail == "b has compacted 3 of these records away"


def test_offsets_that_expire_during_a_run_are_no_difference() -> None:
    judged = judgement()
    judged.judge_differences([Run("t", 0, ONLY_SOURCE, 0, 9), Run("t", 1, ONLY_TARGET, 0, 9)])
    assert judged.suspects() == {"b": FindingKind.MISSING, "a": FindingKind.EXTRA}
    judged.explain_expiry(FindingKind.MISSING, site="b", starts={("t", 0): 4})
    judged.explain_expiry(FindingKind.EXTRA, site="a", starts={})
    assert found(judged) == [(FindingKind.MISSING, 4, 9, ""), (FindingKind.EXTRA, 0, 9, "")]
    assert explained(judged) == [(ExplanationKind.EXPIRED, 0, 3, "b")]


def test_only_a_site_that_lacks_something_is_asked_again() -> None:
    judged = judgement()
    judged.judge_differences([Run("t", 0, ONLY_TARGET, 0, 9)])
    assert judged.suspects() == {"a": FindingKind.EXTRA}


def test_extents_are_reduced_to_what_differs() -> None:
    runs = [Run("t", 0, ONLY_SOURCE, 10, 19), Run("t", 0, ONLY_TARGET, 15, 24), Run("t", 0, ONLY_SOURCE, 90, 200)]
    reduced = narrowed([extent(0), extent(1)], runs)
    assert [(one.partition, one.first_offset, one.source_until, one.target_until) for one in reduced] == [
        (0, 10, 25, 25),
        (0, 90, 100, 100),
    ]
