"""Processes and clocks of other machines, reached by a command like ssh that the environment names.

The command gets one more argument, a line for the shell of that machine. As with
`runtime/children.py`, a process there has a pid file in its directory. Its pid counts only if the
process has the expected command line, because the pid may have been reused.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runtime.children import PID_FILE
from runtime.process import OperationalFailure

ANSWER_WITHIN_S: Final = 30
POLL_S: Final = 0.1
NOT_RUNNING: Final = 3
"""Exit code of our shell lines when the process does not run."""
MARK: Final = "antipode-drill"
NOWHERE: Final = "192.0.2.1"
"""An address that no machine has (RFC 5737)."""


@dataclass(frozen=True, slots=True)
class RemoteShell:
    """The shell of one host."""

    host: str
    command: tuple[str, ...]

    def run(self, line: str, *, accepted: Sequence[int] = (0,)) -> tuple[int, str]:
        """Run a line. Returns the exit code and the output. Raises OperationalFailure for any code
        that is not accepted, and when the host does not answer.
        """
        try:
            done = subprocess.run(
                [*self.command, line],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OperationalFailure(f"host {self.host} does not answer: {error}") from error
        if done.returncode not in accepted:
            reported = (done.stderr or done.stdout).strip()[-500:]
            raise OperationalFailure(f"host {self.host}: {line!r} ended with {done.returncode}: {reported}")
        return done.returncode, done.stdout

    def step_clock(self, by_seconds: int) -> None:
        """Set the clock forward; negative values set it back."""
        self.run(f'date --set "@$(( $(date +%s) + {by_seconds} ))"')

    def break_names(self, names: Sequence[str]) -> None:
        """Make names resolve to an address that no machine has."""
        lines = "".join(f"{NOWHERE} {name} # {MARK}\n" for name in names)
        self.run(f"printf {shlex.quote(lines)} >> /etc/hosts")

    def restore_names(self) -> None:
        """Remove the lines that `break_names` has added. The file keeps its inode, because it may
        be a bind mount.
        """
        self.run(f"kept=$(grep -v '# {MARK}$' /etc/hosts); printf '%s\\n' \"$kept\" > /etc/hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteChild:
    """A process on another host; see `runtime/children.py: Child`."""

    name: str
    command: Sequence[str]
    directory: Path
    log: Path
    shell: RemoteShell
    environment: Mapping[str, str] = field(default_factory=dict)

    def pid(self) -> int | None:
        """The pid of the running process, None when it does not run."""
        code, text = self.shell.run(f"{self._find()}; echo $pid", accepted=(0, NOT_RUNNING))
        return int(text) if not code else None

    def start(self) -> None:
        """Start it detached, output appended to the log."""
        directory, log = shlex.quote(str(self.directory)), shlex.quote(str(self.log))
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.environment.items())
        started = f"env {settings} {shlex.join(self.command)}"
        self.shell.run(f"cd {directory} && (setsid {started} </dev/null >>{log} 2>&1 & echo $! > {PID_FILE})")

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when it does not run."""
        code, _ = self.shell.run(f"{self._find()}; kill -{number.value} $pid", accepted=(0, NOT_RUNNING))
        return not code

    def stop(self, *, timeout_ms: int = 10_000) -> bool:
        """SIGTERM, then SIGKILL at the deadline; True when it ended by itself."""
        if not self.send(signal.SIGTERM):
            return True
        self.send(signal.SIGCONT)
        if self.wait_ended(timeout_ms=timeout_ms):
            return True
        self.send(signal.SIGKILL)
        self.wait_ended(timeout_ms=timeout_ms)
        return False

    def wait_ended(self, *, timeout_ms: int) -> bool:
        """Wait until it does not run; False at the deadline."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def limit_files(self, *, is_full: bool) -> bool:
        """Keep the process from writing to files, or let it write again; False when it does not
        run.
        """
        size = "0" if is_full else "unlimited"
        line = f"{self._find()}; prlimit --pid $pid --fsize={size}:unlimited"
        code, _ = self.shell.run(line, accepted=(0, NOT_RUNNING))
        return not code

    def _find(self) -> str:
        """A shell line that sets `$pid` to the pid in the pid file, if that process is ours."""
        file = shlex.quote(str(self.directory / PID_FILE))
        marker = shlex.quote(self.command[-1] if self.command else self.name)
        return (
            f"pid=$(cat {file} 2>/dev/null) || exit {NOT_RUNNING}; "
            f"tr '\\0' '\\n' < /proc/$pid/cmdline 2>/dev/null | grep -qxF -- {marker} || exit {NOT_RUNNING}; "
            f"grep -q '^State:.Z' /proc/$pid/status && exit {NOT_RUNNING}"
        )
