"""Waiting for conditions: results and errors that end the wait, and the failure's message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.support.eventually import ConditionNeverHeld, eventually, eventually_sync

Result = TypeVar("Result")


def _after(calls: int, result: Result) -> Callable[[], Result | None]:
    remaining = iter(range(calls))

    def condition() -> Result | None:
        return result if next(remaining, None) is None else None

    return condition


def test_the_first_true_result_is_returned() -> None:
    assert eventually_sync(_after(3, "there"), 60_000) == "there"


async def test_a_coroutine_function_is_awaited() -> None:
    tries = []

    async def condition() -> int:
        tries.append(1)
        return len(tries) if len(tries) == 3 else 0

    assert await eventually(condition, 60_000) == 3


async def test_a_plain_function_works_inside_a_loop() -> None:
    assert await eventually(_after(2, 7), 60_000) == 7


def test_a_failed_assertion_in_the_condition_means_not_yet() -> None:
    tries = []

    def condition() -> bool:
        tries.append(1)
        assert len(tries) > 2
        return True

    assert eventually_sync(condition, 60_000)


def test_the_deadline_shows_the_last_assertion() -> None:
    def condition() -> bool:
        raise AssertionError("lag is 7")

    with pytest.raises(ConditionNeverHeld, match=r"within 10 ms.*lag is 7"):
        eventually_sync(condition, 10)


async def test_another_error_ends_the_wait_at_once() -> None:
    def condition() -> bool:
        raise KeyError("topic")

    with pytest.raises(KeyError):
        await eventually(condition, 60_000)
