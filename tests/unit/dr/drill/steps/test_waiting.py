"""A drill that is stopped puts right what its last step broke, when that step is over."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dr.drill.steps.waiting import in_thread
from tests.support.eventually import eventually


async def test_a_step_that_is_stopped_is_over_when_it_has_broken_all_that_it_breaks() -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()
    broken: list[str] = []

    def break_something() -> None:
        has_begun.set()
        may_go_on.wait()
        broken.append("broker a")

    step = asyncio.create_task(in_thread(break_something))
    await eventually(has_begun.is_set)
    for _ in range(2):
        step.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not step.done()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert broken == ["broker a"]


async def test_a_step_tells_what_came_of_it() -> None:
    assert await in_thread(sorted, [2, 1]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)
