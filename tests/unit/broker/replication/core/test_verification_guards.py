"""Guards against writes that come after their transaction's end."""

from __future__ import annotations

from broker.replication.core.verification_guards import VerificationGuards


def test_a_guard_is_valid_until_a_marker_passes() -> None:
    guards = VerificationGuards()
    guard = guards.begin(7)
    assert guards.is_valid(7, guard)
    guards.withdraw(7)
    assert not guards.is_valid(7, guard)
    guards.end(7, guard)
    assert not len(guards)


def test_questions_side_by_side_share_a_guard_until_the_last_is_settled() -> None:
    guards = VerificationGuards()
    first, second = guards.begin(7), guards.begin(7)
    guards.end(7, first)
    assert guards.is_valid(7, second)
    guards.end(7, second)
    assert not guards.is_valid(7, second)


def test_a_guard_taken_after_the_marker_is_not_harmed_by_the_end_of_an_older_one() -> None:
    guards = VerificationGuards()
    older = guards.begin(7)
    guards.withdraw(7)
    newer = guards.begin(7)
    guards.end(7, older)
    assert guards.is_valid(7, newer)
    assert not guards.is_valid(8, newer)
