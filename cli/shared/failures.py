"""Reports the failures of commands and daemons: one line on standard error with the reason, and an
exit code. rich is imported only for such a line, so that daemons start without it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from runtime.process import ExitCode, OperationalFailure


def print_error(message: str) -> None:
    """Print one line on standard error that names the error."""
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False)


@contextmanager
def failures_as_messages() -> Iterator[None]:
    """Turn an operational failure into one line on standard error and exit code 1."""
    try:
        yield
    except OperationalFailure as failure:
        print_error(str(failure))
        raise typer.Exit(ExitCode.FAILED) from failure
    except KeyboardInterrupt as interrupt:
        # not by rich: the interrupt may have ended its first import of a module in the middle
        sys.stderr.write("interrupted\n")
        raise typer.Exit(ExitCode.FAILED) from interrupt


def end_by_sigterm_as_by_ctrl_c() -> None:
    """SIGTERM interrupts the command as Ctrl-C does, so that the command reports what it has done
    and puts right what it has begun.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    # a shell has its background jobs ignore SIGINT
    if not callable(on_ctrl_c):
        raise KeyboardInterrupt
    on_ctrl_c(signal.SIGINT, frame)


def missing_topic(*topics: str) -> OperationalFailure:
    """The failure of topics that no answer shows, or of a pattern that none fits. Brokers do not
    show whether a topic exists to users who may not describe it.
    """
    subject = f"topic {', '.join(topics)}" if topics else "any topic that fits"
    return OperationalFailure(
        f"{subject}: not there, or this user may not describe it; `antipode topics list` shows the others"
    )


def usage_error(message: str) -> typer.Exit:
    """Print a usage error; raise what it returns."""
    print_error(message)
    return typer.Exit(ExitCode.USAGE)
