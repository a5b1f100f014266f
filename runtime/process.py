"""Runs a daemon: an event loop on uvloop, signals that stop it, exit codes, and one line for an
operational failure.
"""

from __future__ import annotations

import asyncio
import enum
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvloop

from runtime.supervision import note_what_escapes


class ExitCode(enum.IntEnum):
    """Exit codes of commands."""

    DONE = 0
    FAILED = 1
    USAGE = 2


class OperationalFailure(Exception):
    """The environment of the program has a problem: the command prints one message, without a stack
    trace.
    """


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the system's maximum: the default limit of a login is too
    low for a broker's logs and connections.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


THREAD_TURN_S = 0.001
"""Time (s) after which the interpreter switches from a running thread to a waiting one. With the
default of 0.005, a thread that encodes a checkpoint would block the event loop that long after each
system call.
"""

_before_sudden_end: list[Callable[[], None]] = []
"""What a second signal calls before it ends the process."""


@contextmanager
def before_sudden_end(call: Callable[[], None]) -> Iterator[None]:
    """In the block, a second signal (`run_daemon`) calls this before it ends the process. It runs
    in the handler of the signal, so it must not wait.
    """
    _before_sudden_end.append(call)
    try:
        yield
    finally:
        _before_sudden_end.remove(call)


DaemonMain = Callable[[asyncio.Event], Awaitable[None]]


def run_daemon(main: DaemonMain) -> ExitCode:
    """Run `main(stop)` until it returns; SIGTERM, SIGINT and the loss of the terminal (SIGHUP) set
    `stop`. A second SIGTERM or SIGINT ends the process at once.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        uvloop.run(_with_signals(main))
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr, flush=True)
        return ExitCode.FAILED
    return ExitCode.DONE


def _end_suddenly(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    for call in _before_sudden_end:
        call()
    os.kill(os.getpid(), number)


async def _with_signals(main: DaemonMain) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    note_what_escapes(loop)

    def ask_to_stop(number: signal.Signals) -> None:
        stop.set()
        if number == signal.SIGHUP:
            # a shell that loses its terminal sends it, and its end sends it once more
            return
        # not a handler of the loop, so that a second signal ends a process whose loop hangs
        loop.remove_signal_handler(number)
        signal.signal(number, _end_suddenly)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup has a program ignore the loss of its terminal
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, ask_to_stop, number)
    await main(stop)
