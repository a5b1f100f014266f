"""The offset that a group gets at the target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.core.offset_choice import Stay, TargetRange, offset_to_commit
from mirror.link.core.committed_offsets import GroupOffset

offsets = st.integers(min_value=0, max_value=100)


@given(
    source=offsets,
    before=st.none() | offsets,
    at_target=st.none() | offsets,
    start=offsets,
    length=offsets,
    is_active=st.booleans(),
    has_moved=st.booleans(),
    is_from_target=st.booleans(),
)
def test_a_group_is_never_ahead_never_behind_and_goes_back_only_after_a_reset(
    source: int,
    before: int | None,
    at_target: int | None,
    start: int,
    length: int,
    is_active: bool,
    has_moved: bool,
    is_from_target: bool,
) -> None:
    """M3, M4."""
    outcome = offset_to_commit(
        source=GroupOffset(source),
        source_before=None if before is None else GroupOffset(before),
        target_committed=None if at_target is None else GroupOffset(at_target),
        target=TargetRange(log_start_offset=start, log_end_offset=start + length),
        is_active_at_target=is_active,
        has_moved_at_target=has_moved,
        is_from_target=is_from_target,
    )
    if isinstance(outcome, Stay):
        assert is_active == (outcome is Stay.ACTIVE)
        assert is_active or is_from_target or at_target is not None, "a group that the target has not is carried"
        if outcome is Stay.MOVED_ON:
            assert has_moved
        return
    assert not is_active
    assert not is_from_target
    assert start <= outcome.offset <= start + length
    if at_target is not None and outcome.offset < at_target:
        assert before is not None
        assert source < before
        assert not has_moved


@pytest.mark.parametrize(
    ("source", "before", "has_moved", "expected"),
    [
        (50, 100, False, GroupOffset(50)),
        (50, 100, True, Stay.MOVED_ON),
        (50, None, False, Stay.UNKNOWN),
        (100, 100, True, Stay.AHEAD),
        (120, 120, False, Stay.IN_SYNC),
    ],
)
def test_a_group_goes_back_only_after_a_certain_reset_at_the_source(
    source: int, before: int | None, has_moved: bool, expected: GroupOffset | Stay
) -> None:
    """M4."""
    outcome = offset_to_commit(
        source=GroupOffset(source),
        source_before=None if before is None else GroupOffset(before),
        target_committed=GroupOffset(120),
        target=TargetRange(log_start_offset=0, log_end_offset=200),
        is_active_at_target=False,
        has_moved_at_target=has_moved,
    )
    assert outcome == expected


def test_a_group_at_offset_zero_is_carried() -> None:
    """M8."""
    target = TargetRange(log_start_offset=0, log_end_offset=0)
    commit = offset_to_commit(
        source=GroupOffset(0), source_before=None, target_committed=None, target=target, is_active_at_target=False
    )
    assert commit == GroupOffset(0)


def test_a_clamped_offset_loses_its_epoch_and_keeps_its_metadata() -> None:
    target = TargetRange(log_start_offset=0, log_end_offset=5)
    commit = offset_to_commit(
        source=GroupOffset(9, 4, "mine"),
        source_before=None,
        target_committed=None,
        target=target,
        is_active_at_target=False,
    )
    assert commit == GroupOffset(5, -1, "mine")
