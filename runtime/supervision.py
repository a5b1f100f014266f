"""Starts all long-lived work that no caller awaits, so that its end is always logged and counted.

Three kinds. A `Supervisor` owns loops that keep no state between their rounds: it logs each failure
with its stack, counts it, and starts the loop again after a jittered wait. `until_done` retries
work that has an end and must be completed, in the same way. `in_background` starts work that may
fail because a caller will ask for it again; it only logs and counts. If state may be inconsistent
after an error, `fatal` names that error, and `on_broken` ends the process.

A task that its owner did not cancel may still get CancelledError, when another task cancels an
operation that it awaits (gRPC cancels the calls of a closed channel). This counts as a failure;
`asyncio.Task.cancelling` shows the difference.

Deaths are counted for the whole process, as `process_*` and `python_*` are; `metrics.py` shows
them. Errors that escape a callback, a thread or a task without an owner are counted too
(`note_what_escapes`), under the name UNSUPERVISED.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from runtime.chance import jitter
from runtime.logs import get_logger

RESTART_INITIAL_MS: Final = 50
RESTART_MAX_MS: Final = 2000
HEALTHY_AFTER_S: Final = 10.0
"""Work that ran at least this long before it failed restarts with the shortest wait."""

UNSUPERVISED: Final = "unsupervised"

ResultT = TypeVar("ResultT")
Arguments = ParamSpec("Arguments")
OnDeath = Callable[[str], Awaitable[None]]
"""Called with the reason of a failure after the wait, before the work starts again."""

_log = get_logger("supervision")
_deaths: Counter[str] = Counter()


def deaths() -> dict[str, int]:
    """The number of deaths of each kind of work in this process."""
    return dict(_deaths)


def note_death(kind: str, *, name: str = "", **facts: object) -> None:
    """Count and log, with its stack, the failure that is being handled."""
    _deaths[kind] += 1
    _log.exception("a task died", task=name or kind, **facts)


def was_asked_to_end() -> bool:
    """True if the running task itself was cancelled, not merely an operation that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class BrokenOff(Exception):
    """An operation that a task awaited was cancelled, but not by the task's owner."""


async def not_broken_off(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Do the work where a cancellation must not look like a regular end: BrokenOff when another
    task cancelled it.
    """
    try:
        return await work()
    except asyncio.CancelledError as error:
        if was_asked_to_end():
            raise
        raise BrokenOff("another task cancelled what this task awaited") from error


class _Waits:
    """The growing waits between the deaths of one piece of work."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance
        self._deaths = 0
        self._began_s = 0.0

    def begin(self) -> None:
        self._began_s = asyncio.get_running_loop().time()

    async def rest(self) -> None:
        lasted_s = asyncio.get_running_loop().time() - self._began_s
        self._deaths = 1 if lasted_s > HEALTHY_AFTER_S else self._deaths + 1
        # 2 to the 10th: beyond it the cap counts in any case
        cap_ms = min(RESTART_MAX_MS, RESTART_INITIAL_MS * 2 ** min(self._deaths, 10))
        await asyncio.sleep(cap_ms * (0.5 + (self._chance or jitter()).random() / 2) / 1000)


async def until_done(kind: str, work: Callable[[], Awaitable[ResultT]], *, name: str = "") -> ResultT:
    """Repeat the work until it ends without a failure; returns its result."""
    waits = _Waits()
    _deaths.setdefault(kind, 0)
    while True:
        waits.begin()
        try:
            return await work()
        except asyncio.CancelledError:
            if was_asked_to_end():
                raise
            note_death(kind, name=name)
        except Exception:
            note_death(kind, name=name)
        await waits.rest()


def in_background(kind: str, work: Coroutine[Any, Any, ResultT], *, name: str = "") -> asyncio.Task[ResultT]:
    """Start work whose end no caller awaits; the caller holds the task. A failure is logged and
    counted.
    """
    _deaths.setdefault(kind, 0)
    task = asyncio.get_running_loop().create_task(work, name=name or kind)
    task.add_done_callback(partial(_look_at, kind))
    return task


async def to_its_end(work: asyncio.Future[ResultT]) -> ResultT:
    """Wait for work that must not stop half way, or that no task can stop (a thread), and return
    its result. A cancelled caller gets CancelledError only when the work has ended, so a stop that
    waits for its tasks waits for that work too.
    """
    try:
        # without a shield the work would be cancelled, while its thread continues unseen
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("work failed whose caller was cancelled", exc_info=error)
        raise


async def in_thread(
    work: Callable[Arguments, ResultT], *arguments: Arguments.args, **settings: Arguments.kwargs
) -> ResultT:
    """Run a function in a thread. A cancelled caller waits for its end: otherwise the thread would
    change things while the caller already restores or removes them.
    """
    return await to_its_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments, **settings)))


def _look_at(kind: str, task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _deaths[kind] += 1
        _log.error("a task died", task=task.get_name(), exc_info=error)


class Supervisor:
    """Owns loops that run until the supervisor is stopped."""

    def __init__(
        self,
        *,
        chance: random.Random | None = None,
        fatal: tuple[type[BaseException], ...] = (),
        on_broken: Callable[[BaseException], None] | None = None,
    ) -> None:
        """An error of a `fatal` type is passed to `on_broken`, which for instance ends the
        process.
        """
        self._chance = chance
        self._fatal = fatal
        self._on_broken = on_broken
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.restarts: dict[str, int] = {}

    def start(
        self, name: str, run: Callable[[], Awaitable[None]], *, kind: str = "", on_death: OnDeath | None = None
    ) -> None:
        """Run `run`, and restart it after each failure; a return counts as a failure. `kind` is the
        common name of similar loops in logs and metrics.
        """
        kind = kind or name
        # Prometheus computes a rate only if it has seen the zero before the first failure
        _deaths.setdefault(kind, 0)
        self.restarts.setdefault(kind, 0)
        self._tasks[name] = asyncio.get_running_loop().create_task(self._keep(name, kind, run, on_death), name=name)

    def leave(self, name: str) -> None:
        """Cancel one loop without waiting for its end."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def stop(self, prefix: str = "") -> None:
        """Stop the loops whose names begin with the prefix."""
        ending = {name: task for name, task in self._tasks.items() if name.startswith(prefix)}
        for name, task in ending.items():
            task.cancel()
            # removed at once, so that a loop of the same name may begin while this one ends
            del self._tasks[name]
        await asyncio.gather(*ending.values(), return_exceptions=True)

    async def _keep(self, name: str, kind: str, run: Callable[[], Awaitable[None]], on_death: OnDeath | None) -> None:
        waits = _Waits(self._chance)
        reason = ""
        while True:
            waits.begin()
            try:
                # inside the try, so that its failure is counted and retried too
                if reason and on_death is not None:
                    await on_death(reason)
                await run()
                reason = f"{name} ended by itself"
                _deaths[kind] += 1
                _log.error("a task ended by itself", task=name)
            except asyncio.CancelledError:
                if was_asked_to_end():
                    raise
                reason = f"{name} died: what it awaited was cancelled"
                note_death(kind, name=name)
            except Exception as error:
                if isinstance(error, self._fatal) and self._on_broken is not None:
                    note_death(kind, name=name)
                    self._on_broken(error)
                    return
                reason = f"{name} died: {type(error).__name__}: {error}"
                note_death(kind, name=name)
            self.restarts[kind] += 1
            await waits.rest()


def note_what_escapes(loop: asyncio.AbstractEventLoop) -> None:
    """Log and count what escapes the callbacks and forgotten tasks of this loop, and the threads of
    this process.
    """

    def escaped_loop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _deaths[UNSUPERVISED] += 1
        facts = {key: repr(context[key]) for key in ("task", "future", "handle") if key in context}
        _log.error(context.get("message", "the loop met an error"), exc_info=context.get("exception"), **facts)

    def escaped_thread(args: threading.ExceptHookArgs) -> None:
        _deaths[UNSUPERVISED] += 1
        name = "" if args.thread is None else args.thread.name
        _log.error("a thread died", thread=name, exc_info=args.exc_value)

    _deaths.setdefault(UNSUPERVISED, 0)
    loop.set_exception_handler(escaped_loop)
    threading.excepthook = escaped_thread
