"""How a command ends by a signal. Promised: a signal that asks for the end, and the loss of the
terminal, end it in good order; a signal that the caller has it ignore (nohup) does not.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal, sys
from runtime.process import run_daemon

async def main(stop):
    print("ready", flush=True)
    await stop.wait()
    if sys.argv[1:] == ["slow"]:
        print("stopping", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print("in good order", flush=True)

# the tests themselves may run under nohup
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1:] == ["nohup"] else signal.SIG_DFL)
sys.exit(run_daemon(main))
"""


def started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(number: signal.Signals) -> None:
    process = started()
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "in good order\n"
    assert process.returncode == 0


def test_the_loss_of_the_terminal_is_ignored_where_the_caller_wants_it() -> None:
    process = started("nohup")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "in good order\n"


def test_the_loss_of_the_terminal_that_is_signalled_twice_is_one() -> None:
    """A shell sends SIGHUP to its jobs, and the kernel does when the shell ends."""
    process = started("slow")
    process.send_signal(signal.SIGHUP)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate("\n", timeout=60)[0] == "in good order\n"
    assert process.returncode == 0
