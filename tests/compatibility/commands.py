"""Runs a client that is a program: its input, its output, and its complaint as the error when it
fails.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compatibility.checks import Read

WITHIN_S = 300
"""The bound of a program that hangs: a Spark query takes 15 s alone, and over 90 s on a machine
where many processes wait for each core.
"""


class CommandFailed(AssertionError):
    """A client's program ended with an error or not at all."""


def run(
    command: Sequence[str],
    given: bytes = b"",
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """The command's output. Raises CommandFailed with the last line of its errors."""
    try:
        ended = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
            cwd=directory,
            env=environment,
        )
    except subprocess.TimeoutExpired as expired:
        raise CommandFailed(f"did not end within {WITHIN_S} s; {_last_line(expired.stderr or b'')}") from expired
    if ended.returncode != 0:
        raise CommandFailed(_last_line(ended.stderr or ended.stdout) or f"ended with {ended.returncode}")
    return ended.stdout


def reads(printed: bytes) -> list[Read]:
    """Lines of partition, offset and value."""
    found = []
    for line in printed.splitlines():
        partition, offset, value = line.split(b" ", 2)
        found.append(Read(int(partition), int(offset), value))
    return found


def lines(values: Sequence[bytes]) -> bytes:
    """Values as a program's input."""
    return b"".join(value + b"\n" for value in values)


def _last_line(complaint: bytes) -> str:
    said = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    return said[-1] if said else ""
