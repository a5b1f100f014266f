"""The verdict of a comparison by digests."""

from __future__ import annotations

import pytest

from dr.proof.core.descent import Difference, DifferenceKind
from dr.proof.core.equality import EqualityReport, PartitionEquality, Verdict

EQUAL = PartitionEquality(topic="t", partition=0, source=None, target=None)
COMPACTED = PartitionEquality(topic="c", partition=0, source=None, target=None, not_compared="compacted")
DIFFERENT = PartitionEquality(
    topic="t",
    partition=1,
    source=None,
    target=None,
    differences=(Difference(kind=DifferenceKind.MISSING, first_offset=0, last_offset=1, detail=""),),
)


@pytest.mark.parametrize(
    ("partitions", "verdict"),
    [
        ((), Verdict.NOT_COMPARED),
        ((COMPACTED,), Verdict.NOT_COMPARED),
        ((COMPACTED, EQUAL), Verdict.EQUAL),
        ((COMPACTED, EQUAL, DIFFERENT), Verdict.DIFFERENT),
    ],
)
def test_sites_are_equal_if_something_was_compared(partitions: tuple[PartitionEquality, ...], verdict: Verdict) -> None:
    report = EqualityReport(
        source_site="a", target_site="b", partitions=partitions, problems=(), notes=(), compared_at_ms=0, elapsed_ms=0
    )
    assert report.verdict is verdict


def test_partitions_that_are_left_out_are_counted() -> None:
    report = EqualityReport(
        source_site="a",
        target_site="b",
        partitions=(COMPACTED, EQUAL),
        problems=(),
        notes=(),
        compared_at_ms=0,
        elapsed_ms=0,
    )
    assert report.left_out == 1
