"""The segments that a clone may share with a running broker's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.core.clone_plan import plan_clone


@pytest.mark.parametrize(
    ("bases", "end", "linked", "copied"),
    [
        ([0], None, (), 0),
        ([0], 0, (), 0),
        ([0, 10, 20], None, (0, 10), 20),
        ([0, 10, 20], 25, (0, 10), 20),
        ([0, 10, 20], 20, (0, 10), 20),
        ([0, 10, 20], 19, (0,), 10),
        ([0, 10, 20], 5, (), 0),
    ],
)
def test_closed_segments_below_the_end_are_shared_and_the_next_one_is_copied(
    bases: list[int], end: int | None, linked: tuple[int, ...], copied: int
) -> None:
    plan = plan_clone(bases, end)
    assert (plan.linked, plan.copied) == (linked, copied)


@given(st.sets(st.integers(0, 100), min_size=1), st.integers(0, 120))
def test_a_shared_segment_is_closed_and_wholly_below_the_end(bases: set[int], end: int) -> None:
    if min(bases) > end:
        with pytest.raises(ValueError, match="above the end"):
            plan_clone(sorted(bases), end)
        return
    plan = plan_clone(sorted(bases), end)
    for base in plan.linked:
        following = min(other for other in bases if other > base)
        assert following <= end
    assert plan.copied not in plan.linked
    assert max(bases) not in plan.linked
    assert plan.copied <= end


def test_a_log_without_a_segment_has_no_plan() -> None:
    with pytest.raises(ValueError, match="no segment"):
        plan_clone([], None)
