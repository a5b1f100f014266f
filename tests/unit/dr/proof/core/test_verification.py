"""Until when sites are proven equal, over comparisons of a standby that lags, differs and heals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dr.proof.core.descent import Difference, DifferenceKind
from dr.proof.core.equality import EqualityReport, PartitionEquality
from dr.proof.core.verification import SNAPSHOTS_MAX, LinkVerification, VerificationWatch

DIFFERENT = Difference(kind=DifferenceKind.DIVERGED, first_offset=3, last_offset=4, detail="differ in crc")


def compared(
    at_ms: int,
    ends: Mapping[str, tuple[int, int]],
    *,
    different: str = "",
    not_compared: Sequence[str] = (),
    problems: tuple[str, ...] = (),
) -> EqualityReport:
    """A report; `ends` has the source's end and the compared end by topic."""
    partitions = [
        PartitionEquality(
            topic=topic,
            partition=0,
            source=None,
            target=None,
            source_end_offset=source_end,
            end_offset=end,
            differences=(DIFFERENT,) if topic == different else (),
            not_compared="compacted" if topic in not_compared else "",
        )
        for topic, (source_end, end) in ends.items()
    ]
    return EqualityReport(
        source_site="a",
        target_site="b",
        partitions=tuple(partitions),
        problems=problems,
        notes=(),
        compared_at_ms=at_ms,
        elapsed_ms=1,
    )


def test_a_standby_that_lags_is_proven_until_the_moment_whose_ends_it_has() -> None:
    watch = VerificationWatch()
    assert watch.observe(compared(10, {"t": (5, 5), "u": (7, 3)}), epoch=1).verified_until_ms == 0
    assert watch.observe(compared(20, {"t": (9, 6), "u": (8, 7)}), epoch=1).verified_until_ms == 10
    state = watch.observe(compared(30, {"t": (9, 9), "u": (9, 8)}), epoch=1)
    assert (state.verified_until_ms, state.compared_at_ms, state.reason) == (20, 30, "")
    assert watch.proven_ends == {("t", 0): 9, ("u", 0): 8}
    assert watch.proven_until_ms == {("t", 0): 30, ("u", 0): 20}


def test_a_difference_stops_the_proof_where_it_was_and_is_named() -> None:
    watch = VerificationWatch()
    watch.observe(compared(10, {"t": (5, 5)}), epoch=1)
    state = watch.observe(compared(20, {"t": (6, 6)}, different="t"), epoch=1)
    assert (state.verified_until_ms, state.differences) == (10, 1)
    assert state.reason == "diverged at site b: t-0 offsets 3 to 4 differ in crc"
    assert watch.proven_until_ms == {("t", 0): 10}
    healed = watch.observe(compared(30, {"t": (6, 6)}), epoch=1)
    assert (healed.verified_until_ms, healed.differences, healed.reason) == (30, 0, "")


def test_a_comparison_with_a_gap_proves_nothing_more() -> None:
    watch = VerificationWatch()
    watch.observe(compared(10, {"t": (5, 5)}), epoch=1)
    state = watch.observe(compared(20, {"t": (5, 5)}, problems=("t-1: no leader",)), epoch=1)
    assert (state.verified_until_ms, state.reason) == (10, "t-1: no leader")


def test_compacted_and_deleted_topics_do_not_hold_the_proof_back_and_compacted_ones_are_named() -> None:
    watch = VerificationWatch()
    watch.observe(compared(10, {"t": (5, 5), "gone": (9, 1)}), epoch=1)
    state = watch.observe(compared(20, {"t": (5, 5), "c": (9, 0)}, not_compared=("c",)), epoch=1)
    assert state.verified_until_ms == 20
    assert state.not_covered == "topic c: compacted"
    assert LinkVerification.of_message(state.as_message()) == state
    assert ("c", 0) not in watch.proven_ends
    assert watch.observe(compared(30, {"t": (5, 5)}), epoch=1).not_covered == ""


def test_topics_that_no_comparison_covers_are_named_as_far_as_a_line_holds_them() -> None:
    names = [f"c{number}" for number in range(9)]
    state = VerificationWatch().observe(
        compared(10, {"t": (5, 5), **dict.fromkeys(names, (9, 0))}, not_compared=names), epoch=1
    )
    assert state.not_covered == "9 topics (c0, c1, c2, c3, c4 and 4 more): compacted"


def test_a_link_of_compacted_topics_alone_is_never_called_equal() -> None:
    watch = VerificationWatch()
    assert watch.observe(compared(10, {"c": (9, 0)}, not_compared=("c",)), epoch=1).verified_until_ms == 0
    # Nor does the proof of topics that were deleted go on.
    watch = VerificationWatch()
    watch.observe(compared(10, {"t": (5, 5), "c": (9, 0)}, not_compared=("c",)), epoch=1)
    assert watch.observe(compared(20, {"c": (9, 0)}, not_compared=("c",)), epoch=1).verified_until_ms == 10


def test_an_epoch_begins_a_proof_of_its_own_and_a_restart_goes_on_from_the_stored_one() -> None:
    known = LinkVerification(epoch=1, verified_until_ms=10, compared_at_ms=12)
    assert VerificationWatch(known).observe(compared(20, {"t": (5, 4)}), epoch=1).verified_until_ms == 10
    assert VerificationWatch(known).observe(compared(20, {"t": (5, 4)}), epoch=2).verified_until_ms == 0


def test_a_standby_that_never_arrives_costs_bounded_memory() -> None:
    watch = VerificationWatch()
    for at_ms in range(1, 3 * SNAPSHOTS_MAX):
        watch.observe(compared(at_ms, {"t": (at_ms, 0)}), epoch=1)
    reached = 2 * SNAPSHOTS_MAX + 5
    state = watch.observe(compared(1_000, {"t": (1_000, reached)}), epoch=1)
    assert state.verified_until_ms == reached
