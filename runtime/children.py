"""Child processes that outlive the process that started them: a command, a directory, a log and a
pid file.

`antipode up` starts a site's parts with this, a drill kills and restarts them, and the command that
stops the site finds each part by its pid file. A process counts as the child only if its command
line is that of the child, so a signal never reaches another process with a reused pid.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from runtime.forking.fork_server import ForkedProcess, ForkServer, ForkServerEnded, is_forkable, request_of
from runtime.process import OperationalFailure

PID_FILE = "pid"

WORK_LOOKED_AT_MS = 500
"""Interval (ms) at which the work of a stopping child is looked at."""


KILLED_WITHIN_MS = 5_000

WRITTEN_BYTES_MIN = 64 * 1024
"""Bytes that a stopping child writes between two looks if it works. Lines of a log are fewer: a
child that waits and logs is not awaited longer.
"""


class WorkDone(NamedTuple):
    """Bytes that a process has written to files, and its open files: the first grows and the second
    falls while it closes its files.
    """

    written_bytes: int
    open_files: int


class Patience:
    """How long a stopping child is awaited: `timeout_ms` after its last visible work, and
    `limit_ms` at most after the first question, unless `timeout_ms` is longer.
    """

    def __init__(self, *, timeout_ms: int, limit_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._limit_ms = max(timeout_ms, limit_ms)
        self._began_ms: float | None = None
        self._worked_ms = 0.0
        self._work: WorkDone | None = None

    def is_over(self, now_ms: float, work: WorkDone | None) -> bool:
        """True if the child is not awaited any longer, by the monotonic time and its work."""
        if self._began_ms is None:
            self._began_ms = self._worked_ms = now_ms
        elif work is not None and self._work is not None and _has_worked(self._work, work):
            self._worked_ms = now_ms
        self._work = work
        allowed_ms = min(self._worked_ms + self._timeout_ms, self._began_ms + self._limit_ms)
        return now_ms >= allowed_ms


def _has_worked(before: WorkDone, now: WorkDone) -> bool:
    has_written = now.written_bytes - before.written_bytes >= WRITTEN_BYTES_MIN
    return has_written or now.open_files < before.open_files


_started: dict[Path, subprocess.Popen[bytes] | ForkedProcess] = {}
"""Children of this process by pid file, so that they can be reaped. The pid cannot be the key:
Linux gives the pid of an ended child to a new process, which another parent may have started.
"""
_fork_servers: list[ForkServer] = []
"""The fork server of this process's children, the last one first."""


@contextmanager
def forked_by(server: ForkServer) -> Iterator[None]:
    """In the block, the server forks each `python -m module` that a `Child` starts, and the module
    needs no imports. Other commands start without a fork server, and so does every command after
    the server has ended.
    """
    _fork_servers.insert(0, server)
    try:
        yield
    finally:
        _fork_servers.remove(server)


@contextmanager
def _until_files_are_closed(pid: int) -> Iterator[None]:
    """After the block, wait until the process has ended as a whole. A process of another parent
    counts as ended when it has no command line any more, and then it may still have its ports and
    files: its memory is freed before.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        yield
        return
    try:
        yield
        select.select([process], [], [], KILLED_WITHIN_MS / 1000)
    finally:
        os.close(process)


class Child(Struct, frozen=True, kw_only=True):
    """One part of a running site. `environment` is added to the caller's own."""

    name: str
    command: Sequence[str]
    directory: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> int:
        """Start the child detached, with its output appended to the log; returns the pid.
        OperationalFailure if it is running already.
        """
        running = self.pid()
        if running is not None:
            raise OperationalFailure(f"{self.name} is running already as process {running}")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        process = self._forked() or self._executed()
        _started[self._pid_path()] = process
        self._pid_path().write_text(f"{process.pid}\n", encoding="ascii")
        return process.pid

    def _forked(self) -> ForkedProcess | None:
        if not _fork_servers or not is_forkable(self.command):
            return None
        try:
            return _fork_servers[0].fork(request_of(self.command, self.directory, self.log, self.environment))
        except ForkServerEnded:
            return None

    def _executed(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def pid(self) -> int | None:
        """The pid of the running process, None when it does not run."""
        try:
            pid = int(self._pid_path().read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    def exit_code(self) -> int | None:
        """The exit code when this process started the child and the child has ended; negative for a
        signal.
        """
        process = _started.get(self._pid_path())
        return None if process is None or self.pid() is not None else process.poll()

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when it does not run."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    def kill_now(self) -> None:
        """SIGKILL the child's process group and wait for nothing. It takes no lock, so that the
        handler of a signal may call it.
        """
        try:
            pid = int(self._pid_path().read_text(encoding="ascii"))
            if self._is_named(pid):
                os.killpg(pid, signal.SIGKILL)
        except (OSError, ValueError):
            return

    def limit_files(self, *, is_full: bool) -> bool:
        """With `is_full`, make each write of the child to a file fail with EFBIG, similar to a full
        disk; else allow writes again. False if it does not run.
        """
        pid = self.pid()
        if pid is None:
            return False
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))
        return True

    def stop(self, *, timeout_ms: int = 10_000, limit_ms: int = 0) -> bool:
        """SIGTERM (after a SIGCONT), then SIGKILL at the deadline; True when it ended by itself.
        Idempotent.

        The deadline is `timeout_ms` away, and moves up to `limit_ms` while the child works: a
        broker closes each of its logs, which may be tens of thousands.
        """
        pid = self.pid()
        if pid is None:
            return True
        with _until_files_are_closed(pid):
            return self._stop(timeout_ms=timeout_ms, limit_ms=limit_ms)

    def _stop(self, *, timeout_ms: int, limit_ms: int) -> bool:
        if not self.send(signal.SIGTERM):
            return True
        # a process stopped by SIGSTOP handles the SIGTERM only after it continues
        self.send(signal.SIGCONT)
        patience = Patience(timeout_ms=timeout_ms, limit_ms=limit_ms)
        while not (has_ended := self.wait_ended(timeout_ms=min(WORK_LOOKED_AT_MS, timeout_ms))):
            if patience.is_over(time.monotonic() * 1000, self._work_done()):
                break
        if has_ended:
            return True
        self.send(signal.SIGKILL)
        self.wait_ended(timeout_ms=KILLED_WITHIN_MS)
        return False

    def wait_ended(self, *, timeout_ms: int) -> bool:
        """Wait until it does not run; False at the deadline."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def log_tail(self, lines: int = 20) -> str:
        """The end of the log, for an error message about a failed start."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _work_done(self) -> WorkDone | None:
        """What the child has done with files until now; None when that cannot be read."""
        pid = self.pid()
        try:
            written = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split("\nwrite_bytes: ")[1].split()[0]
            return WorkDone(int(written), len(os.listdir(f"/proc/{pid}/fd")))
        except (OSError, IndexError, ValueError):
            return None

    def _pid_path(self) -> Path:
        return self.directory / PID_FILE

    def _is_ours(self, pid: int) -> bool:
        process = _started.get(self._pid_path())
        if process is not None and process.poll() is None and process.pid == pid:
            return True
        return self._is_named(pid)

    def _is_named(self, pid: int) -> bool:
        """True if a running process with this pid has the child's command line."""
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
            )
        except (OSError, IndexError):
            return False
        marker = os.fsencode(str(self.command[-1]))
        # The command line of a forked process is one string.
        is_named = any(one == marker or one.endswith(b" " + marker) for one in arguments)
        # a zombie has ended, but its parent, another process, has not reaped it yet
        return state != "Z" and is_named
