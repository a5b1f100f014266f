"""An asyncio event loop whose clock jumps to the next timer, and the processes whose tasks run on
it.

Every callback belongs to the process in whose context it was scheduled. A paused process keeps what
is due and runs it all when it is resumed, as after SIGSTOP; a dead one never runs again. Nothing
here waits for the real world, so a history depends on its seed alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Protocol, TypeVar

from runtime.chance import Chance, use_chance

T = TypeVar("T")
Connector = Callable[..., Awaitable[Any]]

CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)
"""The process whose code runs."""


class Selectable(Protocol):
    """A simulated socket."""

    @property
    def is_readable(self) -> bool:
        """True if bytes, a connection or its end can be taken from it."""
        ...


class Process:
    """Code that stops, sleeps and dies as one."""

    def __init__(self, loop: VirtualLoop, name: str, host: str) -> None:
        self.loop = loop
        self.name = name
        self.host = host
        self.is_alive = True
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.on_death: list[Callable[[], None]] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self.context.run(use_chance, loop.chance)

    def __repr__(self) -> str:
        return self.name

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Run a coroutine as a part of this process."""
        return self.context.copy().run(self.loop.create_task, coroutine, name=name or None)

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have `callback` called inside this process, in its turn."""
        if self.is_alive:
            self.loop.call_soon(callback, *arguments, context=self.context)

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: callbacks that became due meanwhile run now, in their order."""
        self.is_paused = False
        held, self.held = self.held, []
        self.loop.ready.extend(held)

    def kill(self) -> None:
        """SIGKILL: not a line of it runs any more."""
        if not self.is_alive:
            return
        self.is_alive = self.is_paused = False
        self.held.clear()
        for listener in self.on_death:
            listener()


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one run."""

    def __init__(self, seed: int = 0) -> None:
        """The seed is that of the chance of the product's shared code, in all processes."""
        self.chance = Chance(jitter=Random(seed), ids=Random(seed + 3))
        self.now_s = 0.0
        self.ready: deque[asyncio.Handle] = deque()
        self.steps = 0
        self.failures: list[str] = []
        self.is_ending = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self.connector: Connector | None = None
        self.descriptors = itertools.count(1_000_000)
        """Far from those of the operating system; client addresses in a history have them."""
        self.selectable: dict[int, Selectable] = {}
        """Simulated sockets by their descriptors."""
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...], Context]] = {}

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > TASKS_KEPT_MAX:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """The work of a thread: done at once, seen by the caller in a later step."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_soon(_fail, future, error)
        else:
            self.call_soon(_fulfil, future, result)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.connector is not None, "no network"
        return await self.connector(protocol_factory, host, port, **options)

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = (callback, args, copy_context())
        self.signal(fd)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._readers.pop(fd, None) is not None

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        """No writer is ever added: a simulated socket takes everything."""
        del fd
        return False

    def signal(self, fd: int) -> None:
        """A socket can be read, perhaps: call its reader in its process, as long as that is so."""
        reader = self._readers.get(fd)
        if reader is not None and self.selectable[fd].is_readable:
            self.call_soon(self._read, fd, context=reader[2])

    def _read(self, fd: int) -> None:
        reader, selectable = self._readers.get(fd), self.selectable.get(fd)
        if reader is not None and selectable is not None and selectable.is_readable:
            callback, arguments, _ = reader
            callback(*arguments)
            self.signal(fd)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_ending:
            return
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when they are due."""

    # --- running

    def run(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Run until the time, or until `is_over` says so (asked whenever the clock moves)."""
        asyncio._set_running_loop(self)
        try:
            self._run(until_s, is_over)
        finally:
            asyncio._set_running_loop(None)

    def _run(self, until_s: float, is_over: Callable[[], bool]) -> None:
        ready, timers = self.ready, self._timers
        while True:
            while ready:
                self._step(ready.popleft())
            if is_over() or not timers or timers[0][0] > until_s:
                return
            when, _, handle = heapq.heappop(timers)
            self.now_s = max(self.now_s, when)
            self._step(handle)

    def _step(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
        if process is not None and not self.is_ending:
            if not process.is_alive:
                return
            if process.is_paused:
                process.held.append(handle)
                return
        self.steps += 1
        handle._run()

    def end(self) -> None:
        """Cancel all remaining tasks, also those of killed processes, so that nothing outlives the
        run.
        """
        self.is_ending = True
        for task in self._tasks:
            _close_what_it_would_await(task)
        asyncio._set_running_loop(self)
        try:
            for _ in range(ENDING_TURNS):
                left = [task for task in self._tasks if not task.done()]
                if not left:
                    break
                for task in left:
                    task.cancel()
                for _ in range(ENDING_STEPS_MAX):
                    if not self.ready:
                        break
                    self._step(self.ready.popleft())
        finally:
            asyncio._set_running_loop(None)
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                with contextlib.suppress(RuntimeError):  # one that awaits something more on its way out
                    task.get_coro().close()
            if task.done() and not task.cancelled():
                task.exception()


def _close_what_it_would_await(task: asyncio.Task[Any]) -> None:
    """Coroutines that were passed to a coroutine which never ran: no other code would close
    them.
    """
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return
    frame = coroutine.cr_frame
    for value in frame.f_locals.values() if frame is not None else ():
        if inspect.iscoroutine(value):
            value.close()


def _fulfil(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


TASKS_KEPT_MAX = 5_000
"""Finished tasks are let go when more than this have been made."""
ENDING_TURNS = 6
ENDING_STEPS_MAX = 100_000
