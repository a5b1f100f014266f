"""A process that has imported modules and forks a child for each request: the child starts without
the second of CPU that the imports of a daemon cost. `fork_server_process.py` is that process.

It is for many short-lived sites on one machine: `antipode up`, the demo, drills and tests. A daemon
of a real deployment is started by its own command.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from runtime.process import OperationalFailure

PYTHON_MODULE: Final = (sys.executable, "-m")
"""How a command begins that the server can run: `python -m module arguments`."""
EXIT_CODE_UNKNOWN: Final = 255
"""The exit code of a process whose fork server has ended before it."""

_ANSWERS_WITHIN_S: Final = 120
"""More than the imports take on a busy machine: the first answer waits for them."""
_END_WITHIN_S: Final = 10
_TITLE_ROOM: Final = {"ANTIPODE_TITLE_ROOM": "-" * 4096}
"""A variable that makes room for titles: a title takes the place of the command line and of the
first environment, and by its last argument another process recognises a child.
"""


class ForkRequest(Struct, frozen=True, kw_only=True):
    """A process to fork: `python -m module arguments` in a directory, its two outputs appended to
    files, with this environment and no other. With `has_server` it gets a fork server of its own,
    which has the same modules.
    """

    module: str
    arguments: Sequence[str]
    directory: str
    output: str
    errors: str
    environment: Mapping[str, str]
    input: str = os.devnull
    has_server: bool = False


class ForkServerEnded(OperationalFailure):
    """The fork server has ended."""


class ForkServer:
    """The owner's side. Safe for several threads."""

    def __init__(self, channel: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        channel.settimeout(_ANSWERS_WITHIN_S)
        self._channel = channel
        self._process = process
        self._lines = channel.makefile("rw", encoding="utf-8")
        self._asking = threading.Lock()
        self._exit_codes: dict[int, int] = {}

    @classmethod
    def start(cls, modules: Sequence[str]) -> ForkServer:
        """Start one that imports the modules; it answers when it has."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*PYTHON_MODULE, "runtime.forking.fork_server_process", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **_TITLE_ROOM},
            )
        return cls(ours, process)

    def fork(self, request: ForkRequest) -> ForkedProcess:
        """Fork a process. ForkServerEnded if the server has ended; OperationalFailure if it does
        not answer, because then the process may run all the same.
        """
        with self._asking:
            pid = int(self._ask(asdict(request)))
            # Linux gives the pid of an ended process to a new one.
            self._exit_codes.pop(pid, None)
        return ForkedProcess(pid, self)

    def exit_code(self, pid: int) -> int | None:
        """How a process ended, negative for a signal; None while it runs."""
        with self._asking:
            if pid not in self._exit_codes:
                code = self._ask({"pid": pid})
                if code is None:
                    return None
                self._exit_codes[pid] = int(code)
            return self._exit_codes[pid]

    def close(self) -> None:
        """End the server; processes that it forked continue."""
        with self._asking:
            self._lines.close()
            self._channel.close()
        if self._process is None:
            return
        try:
            self._process.wait(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        try:
            self._lines.write(f"{json.dumps(request)}\n")
            self._lines.flush()
            answer = self._lines.readline()
        except TimeoutError as error:
            raise OperationalFailure(f"the fork server has not answered within {_ANSWERS_WITHIN_S} s") from error
        except (OSError, ValueError) as error:
            raise ForkServerEnded(f"the fork server has ended: {error}") from error
        if not answer:
            raise ForkServerEnded("the fork server has ended")
        return json.loads(answer)


class ForkedProcess(Struct):
    """A process that a fork server forked, as far as `subprocess.Popen` is used for children."""

    pid: int
    _server: ForkServer

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        try:
            return self._server.exit_code(self.pid)
        except ForkServerEnded:
            return None if _is_running(self.pid) else EXIT_CODE_UNKNOWN


def _is_running(pid: int) -> bool:
    """False for a zombie, too: where process 1 reaps nothing, an ended process stays one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class _Inherited:
    """The fork server that this process got from the one that forked it."""

    server: ForkServer | None = None


def inherit(channel: socket.socket) -> None:
    """Keep the fork server that belongs to this forked process."""
    _Inherited.server = ForkServer(channel)


def own_fork_server(modules: Sequence[str]) -> ForkServer:
    """A fork server for the children of this process: the inherited one, or a new one."""
    inherited, _Inherited.server = _Inherited.server, None
    return inherited or ForkServer.start(modules)


def is_forkable(command: Sequence[str]) -> bool:
    """True if a fork server can run the command."""
    return tuple(command[: len(PYTHON_MODULE)]) == PYTHON_MODULE and len(command) > len(PYTHON_MODULE)


def request_of(command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> ForkRequest:
    """The request for a command with both outputs in one log; `environment` is added to this
    process's own.
    """
    module, *arguments = command[len(PYTHON_MODULE) :]
    return ForkRequest(
        module=module,
        arguments=arguments,
        directory=str(directory.absolute()),
        output=str(log.absolute()),
        errors=str(log.absolute()),
        environment={**os.environ, **environment},
    )
