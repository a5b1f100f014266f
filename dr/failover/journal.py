"""The journal of a run: one JSON line before and after each action, flushed to disk before the next
action begins.

People read it after a crash. No program does, because a repeated run decides from the sites' state.
The first line names the actor: user, host, process and command.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.process import OperationalFailure

_log = get_logger("dr.journal")


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
    """Appends to one file; without a path it writes nothing. Use as a context manager.

    A file that cannot be written is an OperationalFailure before the run begins. Later the run goes
    on without its journal: writers may be stopped, and the sites keep the steps of the run too.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # Without a buffer: bytes that a full disk refused are not tried again at the end.
                self._file = path.open("ab", buffering=0)
            except OSError as error:
                raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OperationalFailure:
        return OperationalFailure(
            f"journal {self._path} cannot be written: {error.strerror}; nothing is begun: repair that, or name another file"
        )

    def write(self, event: str, **fields: Any) -> None:
        """Write one line and flush it to disk before returning."""
        try:
            self._append(event, fields)
        except OSError as error:
            _log.warning("the run goes on without its journal", journal=str(self._path), reason=error.strerror)
            self._close()

    def _append(self, event: str, fields: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = {"at_ms": self._clock.now_ms(), "event": event, **fields}
        text = json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"
        if self._file.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file.fileno())

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        try:
            if self._file is not None and self._ends_torn():
                self._file.write(b"\n")
            self._append("journal opened", acting())
        except OSError as error:
            self._close()
            raise self._unwritable(error) from error
        return self

    def _ends_torn(self) -> bool:
        """True if a process died while it wrote the last line of the file."""
        assert self._path is not None
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as earlier:
            earlier.seek(-1, os.SEEK_END)
            return earlier.read(1) != b"\n"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.write("run interrupted", error=repr(error))
        self._close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return all whole lines; torn ones, of processes that died while they wrote, are left out."""
    lines = []
    for text in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines
