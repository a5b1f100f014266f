"""What a command does when its output is full or closed: one message, and never a stack trace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VERSION, HELP = ("--version",), ("topics", "--help")


def run(*arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    """The command under a shell that redirects its standard streams."""
    command = f'exec "$0" -m cli.main "$@" {redirected}'
    return subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("arguments", [VERSION, HELP])
def test_a_full_disk_is_one_message(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments, redirected=">/dev/full")
    assert ended.stderr == "error: standard output cannot be written: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("redirected", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_empty(redirected: str) -> None:
    ended = run(*HELP, redirected=redirected)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_pipe_ends_a_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "cli.main", *VERSION], stdout=output, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (1, b"")
