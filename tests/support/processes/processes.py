"""Real processes under a test's control: start, wait until ready, stop, kill -9, pause; none
outlives its owner.

A `Processes` belongs to a fixture (`processes` for a test, `session_processes` for the whole run)
that stops everything when it ends, however the test ended. The processes are
`runtime.children.Child`, as `antipode up` starts them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from runtime.children import Child
from tests.support.eventually import eventually, eventually_sync
from tests.support.processes.fork_server import start

READY_WITHIN_MS = 120_000
STOP_WITHIN_MS = 120_000


class RunningProcess:
    """One child process with its log; it can end and be started again."""

    def __init__(self, child: Child) -> None:
        self.child = child

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.child.name

    @property
    def pid(self) -> int:
        """The pid. Raises AssertionError if it does not run."""
        pid = self.child.pid()
        assert pid is not None, self._ended_message()
        return pid

    @property
    def is_running(self) -> bool:
        """True if it runs or is paused."""
        return self.child.pid() is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.child.exit_code()

    def log_text(self) -> str:
        """The whole log so far."""
        return self.child.log.read_text(encoding="utf-8", errors="replace") if self.child.log.exists() else ""

    def start(self) -> None:
        """Start it (again); the log file is continued."""
        start(self.child)

    def wait_ready(self, is_ready: Callable[[], object], within_ms: float = READY_WITHIN_MS) -> None:
        """Wait for `is_ready`. Raises AssertionError with the end of the log at once if the process
        ends instead.
        """

        def ready_or_ended() -> bool:
            return bool(is_ready()) or not self.is_running

        eventually_sync(ready_or_ended, within_ms)
        assert self.is_running, self._ended_message()

    async def wait_ready_async(
        self, is_ready: Callable[[], object | Awaitable[object]], within_ms: float = READY_WITHIN_MS
    ) -> None:
        """As `wait_ready`, inside a loop; `is_ready` may be a coroutine function."""

        async def ready_or_ended() -> bool:
            if not self.is_running:
                return True
            outcome = is_ready()
            return bool(await outcome) if isinstance(outcome, Awaitable) else bool(outcome)

        await eventually(ready_or_ended, within_ms)
        assert self.is_running, self._ended_message()

    def wait_logged(self, pattern: str, within_ms: float = READY_WITHIN_MS) -> re.Match[str]:
        """Wait for the first match of a regular expression in the log. Raises AssertionError if the
        process ends without it.
        """
        self.wait_ready(lambda: re.search(pattern, self.log_text()), within_ms)
        match = re.search(pattern, self.log_text())
        assert match is not None
        return match

    def wait_ended(self, within_ms: int = STOP_WITHIN_MS) -> int:
        """Wait until it has ended by itself. Returns its exit code."""
        assert self.child.wait_ended(timeout_ms=within_ms), f"{self.name} still runs after {within_ms} ms"
        code = self.exit_code
        assert code is not None, f"{self.name} was never started"
        return code

    def stop(self, within_ms: int = STOP_WITHIN_MS) -> None:
        """Send SIGTERM, and kill -9 if the process does not end in time (raises AssertionError
        then). A process that does not run stays as it is.
        """
        assert self.child.stop(timeout_ms=within_ms), f"{self.name} ignored SIGTERM for {within_ms} ms\n{self._tail()}"

    def kill(self) -> None:
        """kill -9, and wait until it is gone. Nothing when it does not run."""
        if self.child.send(signal.SIGKILL):
            assert self.child.wait_ended(timeout_ms=STOP_WITHIN_MS), f"{self.name} survived SIGKILL"

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.child.send(signal.SIGSTOP), self._ended_message()

    def resume(self) -> None:
        """SIGCONT."""
        assert self.child.send(signal.SIGCONT), self._ended_message()

    def _ended_message(self) -> str:
        return f"{self.name} does not run (exit code {self.exit_code})\n{self._tail()}"

    def _tail(self) -> str:
        return f"--- end of {self.child.log}\n{self.child.log_tail()}"


class Processes:
    """Everything that one fixture started."""

    def __init__(self) -> None:
        self._processes: list[RunningProcess] = []

    def run(self, child: Child) -> RunningProcess:
        """Start a child and own it from now on."""
        process = RunningProcess(child)
        self._processes.append(process)
        process.start()
        return process

    def run_command(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> RunningProcess:
        """Start a command in a directory of its own; its output goes to `<name>.log` there."""
        log = directory / f"{name}.log"
        return self.run(
            Child(name=name, command=command, directory=directory, log=log, environment=dict(environment or {}))
        )

    def end_all(self) -> None:
        """kill -9 all processes that still run, the last started first."""
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()
