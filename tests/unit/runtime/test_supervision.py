"""Work that no caller awaits: its end is always reported, and it starts again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from runtime.metrics import new_registry
from runtime.supervision import (
    UNSUPERVISED,
    Supervisor,
    deaths,
    in_background,
    in_thread,
    note_what_escapes,
    to_its_end,
    until_done,
    was_asked_to_end,
)
from tests.support.eventually import eventually


async def _cancelled_by_somebody_else() -> None:
    """Ends as a gRPC call does whose channel is closed."""
    given_up = asyncio.get_running_loop().create_future()
    given_up.cancel()
    await given_up


async def _raising() -> None:
    raise ValueError("a malformed answer")


def _broken() -> None:
    raise ValueError("a defect")


async def _returning() -> None:
    return


@pytest.mark.parametrize("end", [_cancelled_by_somebody_else, _raising, _returning])
async def test_a_loop_begins_anew_whatever_ends_it(end: Callable[[], Awaitable[None]]) -> None:
    loops, kind = Supervisor(), f"loop of {end.__name__}"
    rounds, reasons = 0, list[str]()

    async def run() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            await end()
            return
        await asyncio.Event().wait()

    async def note(reason: str) -> None:
        reasons.append(reason)

    with capture_logs() as said:
        loops.start(kind, run, on_death=note)
        await eventually(lambda: rounds == 3)
        await loops.stop()
    assert deaths()[kind] == loops.restarts[kind] == len(reasons) == 2
    assert [entry["task"] for entry in said] == [kind, kind]


async def test_a_loop_survives_a_failing_listener_of_its_death() -> None:
    loops, rounds = Supervisor(), 0

    async def run() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ValueError("once")
        await asyncio.Event().wait()

    complaints = iter([True, False])

    async def on_death(_: str) -> None:
        if next(complaints):
            raise ValueError("the mending failed, too")

    loops.start("mended", run, on_death=on_death)
    await eventually(lambda: rounds == 2)
    await loops.stop()


async def test_a_loop_that_is_stopped_ends_even_inside_of_a_timeout() -> None:
    loops, is_running = Supervisor(), asyncio.Event()

    async def run() -> None:
        while True:
            is_running.set()
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                continue

    loops.start("patient", run)
    await is_running.wait()
    await asyncio.wait_for(loops.stop(), 30)
    assert loops.restarts["patient"] == 0


async def test_a_fatal_error_goes_to_who_ends_the_process_and_nothing_begins_anew() -> None:
    broken = list[BaseException]()
    loops = Supervisor(fatal=(AssertionError,), on_broken=broken.append)

    async def run() -> None:
        raise AssertionError("the state contradicts itself")

    loops.start("unsound", run)
    await eventually(lambda: broken)
    assert loops.restarts["unsound"] == 0
    await loops.stop()


async def test_work_that_must_not_be_left_undone_is_tried_until_it_succeeds() -> None:
    ends = iter([_raising, _cancelled_by_somebody_else, _returning])
    await asyncio.wait_for(until_done("errand", lambda: next(ends)()), 30)
    assert deaths()["errand"] == 2


async def test_work_in_the_background_that_fails_is_counted() -> None:
    await asyncio.wait([in_background("whim", _raising())])
    await eventually(lambda: deaths()["whim"] == 1)


async def test_only_who_is_cancelled_was_asked_to_end() -> None:
    async def foreign() -> bool:
        try:
            await _cancelled_by_somebody_else()
        except asyncio.CancelledError:
            return was_asked_to_end()
        return True

    assert not await asyncio.create_task(foreign())


async def test_errors_that_escape_callbacks_and_threads_are_counted() -> None:
    loop, hook = asyncio.get_running_loop(), threading.excepthook
    before = deaths().get(UNSUPERVISED, 0)
    note_what_escapes(loop)
    try:
        loop.call_soon(_broken)
        await eventually(lambda: deaths()[UNSUPERVISED] == before + 1)
        thread = threading.Thread(target=_broken)
        thread.start()
        thread.join()
        assert deaths()[UNSUPERVISED] == before + 2
    finally:
        threading.excepthook = hook
        loop.set_exception_handler(None)


async def test_every_registry_shows_the_deaths_of_its_process() -> None:
    await asyncio.wait([in_background("seen in metrics", _raising())])
    await eventually(lambda: deaths()["seen in metrics"])
    found = new_registry().get_sample_value("antipode_task_deaths_total", {"task": "seen in metrics"})
    assert found == 1


async def test_work_that_fails_after_its_caller_was_cancelled_is_logged() -> None:
    goes_on = asyncio.Event()

    async def fail() -> None:
        await goes_on.wait()
        raise OSError("disk full")

    work = asyncio.create_task(fail())
    caller = asyncio.create_task(to_its_end(work))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    goes_on.set()
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await caller
    assert [line["event"] for line in logs] == ["work failed whose caller was cancelled"]


async def test_a_cancelled_caller_of_a_thread_ends_when_the_thread_has_done_all_that_it_does() -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        has_begun.set()
        may_go_on.wait()
        done.append("all of it")

    caller = asyncio.create_task(in_thread(work))
    await eventually(has_begun.is_set)
    for _ in range(2):
        caller.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not caller.done()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["all of it"]


async def test_the_outcome_of_a_thread_is_its_callers() -> None:
    assert await in_thread(sorted, [2, 1]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)
