"""The streaming queries of a drill: programs that keep topics as files, with a checkpoint.

The command of a query is given (`execution.Commands`), so this package does without Spark. The
program makes the file STORED in its directory when first records are in its files. When the file
BROKERS appears or changes, the query continues at the brokers in it. When the file FINISH is there,
the program reads what the topics hold, compares the files with them, writes the counts to
COMPARISON, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from runtime.process import OperationalFailure

STORED = "stored"
BROKERS = "brokers"
FINISH = "finish"
COMPARISON = "comparison.json"


class DrillQueries:
    """Every query of one drill, at most one program for each at a time."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        self._directory = directory
        self._command = tuple(command)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *, bootstrap: str, topics: Sequence[str]) -> bool:
        """Start the program of a query; a query that was started before continues at these brokers,
        True in that case. OperationalFailure if its program has failed.
        """
        directory = self._directory / name
        was_started = name in self._running
        if was_started and (problem := self._problem(name)):
            raise OperationalFailure(problem)
        if was_started and self._running[name].poll() is None:
            part = directory / f"{BROKERS}.part"
            part.write_text(bootstrap, encoding="utf-8")
            part.replace(directory / BROKERS)  # whole at once: the program reads it at any time
            return True
        if was_started:
            for file in (BROKERS, FINISH, COMPARISON):
                (directory / file).unlink(missing_ok=True)
        else:
            # An earlier drill with the same directory for its report may have left its files.
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        values = {"bootstrap": bootstrap, "topics": ",".join(topics), "directory": str(directory)}
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [part.format_map(values) for part in self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return was_started

    def has_stored(self, name: str) -> bool:
        """True if records of the query are in its files. Raises OperationalFailure for a query that
        was not started.
        """
        self._of(name)
        return (self._directory / name / STORED).exists()

    async def finish(self, name: str, *, within_ms: int) -> dict[str, Any]:
        """Let the program read to the end; its comparison (`Comparison` of the pipeline
        follow-topics). Raises OperationalFailure if the program does not end within the time, or
        with an error.
        """
        process = self._of(name)
        (self._directory / name / FINISH).touch()
        try:
            await asyncio.to_thread(process.wait, within_ms / 1000)
        except subprocess.TimeoutExpired as error:
            raise OperationalFailure(f"query {name} did not end within {within_ms} ms") from error
        if problem := self._problem(name):
            raise OperationalFailure(problem)
        found: dict[str, Any] = json.loads((self._directory / name / COMPARISON).read_text(encoding="utf-8"))
        return found

    def check_alive(self) -> None:
        """Raises OperationalFailure if a program has ended with an error."""
        for problem in filter(None, map(self._problem, self._running)):
            raise OperationalFailure(problem)

    def end_all(self) -> None:
        """Kill all programs that still run."""
        for process in self._running.values():
            _kill(process)

    def _of(self, name: str) -> subprocess.Popen[bytes]:
        if name not in self._running:
            raise OperationalFailure(f"query {name!r} was not started; started: {', '.join(self._running) or 'none'}")
        return self._running[name]

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _problem(self, name: str) -> str:
        code = self._running[name].poll()
        if code in (None, 0):
            return ""
        return f"query {name} ended with exit code {code}: {self._log(name).read_text(errors='replace')[-500:].strip()}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the program with its own children."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
