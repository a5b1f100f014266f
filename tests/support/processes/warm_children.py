"""Children that a test run starts by the hundred, forked by a process that has their modules
already (`template.py`). Everything else is as with any child: a pid, a log, signals, an exit code.

Only the parts that tests define are started so. What `antipode` starts itself is started as a user
starts it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from runtime.children import Child
from runtime.process import OperationalFailure
from tests.support.processes.template import PARTS

_PYTHON_MODULE: Final = 2
"""Where a command of `python -m module arguments` names its module."""

_END_WITHIN_S: Final = 10


def warmed(child: Child) -> Child:
    """The child, forked by this process's template where that knows its module."""
    command = list(child.command)
    if command[:_PYTHON_MODULE] != [sys.executable, "-m"] or command[_PYTHON_MODULE] not in PARTS:
        return child
    return WarmChild(**{field.name: getattr(child, field.name) for field in fields(child)})


class WarmChild(Child):
    """A child that the template forks."""

    def start(self) -> int:
        """As `Child.start`."""
        if self.pid() is not None:
            raise OperationalFailure(f"{self.name} is running already")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        started = _template().start(self)
        self._pid_path().write_text(f"{started}\n", encoding="ascii")
        _pids[self._pid_path()] = started
        return started

    def pid(self) -> int | None:
        """As `Child.pid`."""
        started = _pids.get(self._pid_path())
        return started if started is not None and _template().exit_code(started) is None else None

    def exit_code(self) -> int | None:
        """As `Child.exit_code`."""
        started = _pids.get(self._pid_path())
        return None if started is None else _template().exit_code(started)


class _Template:
    """The process that forks, and what it knows of its children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.template"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._exit_codes: dict[int, int] = {}
        self._asking = threading.Lock()
        atexit.register(self._end)

    def start(self, child: Child) -> int:
        """Fork a child; its pid."""
        module, *arguments = child.command[_PYTHON_MODULE:]
        pid = self._ask(
            {
                "module": module,
                "arguments": arguments,
                "directory": str(child.directory.absolute()),
                "log": str(child.log.absolute()),
                "environment": {**os.environ, **child.environment},
            }
        )
        # The pid of an ended child may come back.
        self._exit_codes.pop(pid, None)
        return int(pid)

    def exit_code(self, pid: int) -> int | None:
        """How a child ended; None while it runs."""
        with self._asking:
            if pid not in self._exit_codes:
                code = self._answer({"pid": pid})
                if code is None:
                    return None
                self._exit_codes[pid] = code
            return self._exit_codes[pid]

    def _ask(self, request: Mapping[str, Any]) -> Any:
        with self._asking:
            return self._answer(request)

    def _answer(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the template of child processes ended with {self._process.poll()}"
        return json.loads(answer)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_pids: Final[dict[Path, int]] = {}
"""The pid of each child that was started, by its pid file; as `runtime.children` keeps its own."""
_templates: Final[list[_Template]] = []


def _template() -> _Template:
    if not _templates:
        _templates.append(_Template())
    return _templates[0]
