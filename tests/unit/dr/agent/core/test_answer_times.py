"""The deadline of questions to a peer follows the time of its answers."""

from __future__ import annotations

import functools

from dr.agent.core.answer_times import DEADLINE_MS_MAX, DEADLINE_MS_MIN, AnswerTimes


def after(times: AnswerTimes, took_ms: float, count: int) -> AnswerTimes:
    return functools.reduce(AnswerTimes.answered, [took_ms] * count, times)


def test_fast_answers_keep_the_shortest_deadline() -> None:
    assert AnswerTimes().deadline_ms == DEADLINE_MS_MIN
    assert after(AnswerTimes(), 120.0, 100).deadline_ms == DEADLINE_MS_MIN


def test_slow_answers_are_awaited_for_longer_and_never_for_longer_than_the_bound() -> None:
    assert after(AnswerTimes(), 900.0, 4).deadline_ms > 1_500
    late = AnswerTimes().late()
    assert late.deadline_ms == 2 * DEADLINE_MS_MIN
    assert late.late().late().deadline_ms == DEADLINE_MS_MAX
    assert after(AnswerTimes(), 60_000.0, 50).deadline_ms == DEADLINE_MS_MAX


def test_a_site_that_is_fast_again_is_noticed_early_again() -> None:
    slow = after(AnswerTimes().late().late(), 3_000.0, 10)
    assert slow.deadline_ms > 2 * DEADLINE_MS_MIN
    assert after(slow, 20.0, 60).deadline_ms == DEADLINE_MS_MIN
