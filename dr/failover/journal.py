"""The journal of a run: one JSON line before and after each action, flushed to disk before the next
action begins.

People read it after a crash. No program does, because a repeated run decides from the sites' state.
The first line names the actor: user, host, process and command.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runtime.clock import Clock
from runtime.process import OperationalFailure


def acting() -> dict[str, Any]:
    """The user who runs this process, as far as the machine reports it; with sudo also the original
    user.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # The user of a container may have no entry in /etc/passwd.
    asked_by = os.environ.get("SUDO_USER", "")
    return {
        "who": f"{user}@{socket.gethostname()}" + (f" (sudo by {asked_by})" if asked_by else ""),
        "pid": os.getpid(),
        "command": shlex.join(sys.argv),
    }


class Journal:
    """Appends to one file; without a path it writes nothing. Use as a context manager."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._file = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise OperationalFailure(f"journal {path} cannot be written: {error.strerror}") from error

    def write(self, event: str, **fields: Any) -> None:
        """Write one line and flush it to disk before returning."""
        if self._file is None:
            return
        line = {"at_ms": self._clock.now_ms(), "event": event, **fields}
        self._file.write(json.dumps(line, separators=(",", ":"), default=str) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        self.write("journal opened", **acting())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.write("run interrupted", error=repr(error))
        if self._file is not None:
            self._file.close()
            self._file = None


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return all whole lines; a torn last line, of a process that died while writing, is left
    out.
    """
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines
