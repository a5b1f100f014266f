"""Runs a daemon: an event loop on uvloop, signals that stop it, exit codes, and one line for an
operational failure.
"""

from __future__ import annotations

import asyncio
import enum
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

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

DaemonMain = Callable[[asyncio.Event], Awaitable[None]]


def run_daemon(main: DaemonMain) -> ExitCode:
    """Run `main(stop)` until it returns; SIGTERM and SIGINT set `stop`. A second signal ends the
    process at once.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        uvloop.run(_with_signals(main))
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr, flush=True)
        return ExitCode.FAILED
    return ExitCode.DONE


async def _with_signals(main: DaemonMain) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    note_what_escapes(loop)

    def ask_to_stop(number: signal.Signals) -> None:
        stop.set()
        # the default handler again, so that a second signal ends a process whose stop hangs
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop, number)
    await main(stop)
