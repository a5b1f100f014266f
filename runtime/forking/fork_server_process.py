"""The process of `fork_server.py`:
`python -m runtime.forking.fork_server_process DESCRIPTOR MODULE...`.

It reads JSON requests from a socket, one on each line, and writes a response to each. It has one
thread, so a fork copies all of it. It ends when its owner closes the socket.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Sequence

from setproctitle import setproctitle

from runtime.forking.fork_server import ForkRequest, inherit
from runtime.garbage import expect_no_garbage


def main(arguments: Sequence[str]) -> None:
    """Import the modules and serve; a forked process leaves the loop and runs its module."""
    descriptor, *modules = arguments
    # The title overwrites the command line and the first environment, so it is set before the
    # environment changes.
    setproctitle("python -m runtime.forking.fork_server_process")
    channel = socket.socket(fileno=int(descriptor))
    # `cli.main` does both before it imports a command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    expect_no_garbage()
    for name in modules:
        importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError("a module starts a thread when it is imported: a fork would not have it")
    # A collection would write to every object, and so copy the memory that the forks share.
    gc.freeze()
    request = _serve(channel)
    if request is not None:
        _become(request)


def _serve(channel: socket.socket) -> ForkRequest | None:
    """Answer requests. None when the owner has closed the socket; in a forked process its
    request.
    """
    exit_codes: dict[int, int] = {}
    lines = channel.makefile("rw", encoding="utf-8")
    while line := lines.readline():
        request = json.loads(line)
        _reap(exit_codes)
        answer: int | None
        if "pid" in request:
            answer = exit_codes.pop(request["pid"], None)
        else:
            wanted = ForkRequest(**request)
            answer = os.fork()
            if not answer:
                lines.close()
                channel.close()
                served = _with_server() if wanted.has_server else None
                return wanted if served is None else _serve(served)
            exit_codes.pop(answer, None)
        lines.write(f"{json.dumps(answer)}\n")
        lines.flush()
    return None


def _with_server() -> socket.socket | None:
    """Fork once more: the new process is the fork server of this one, and gets its socket. None in
    this one, which has the other end.
    """
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        inherit(ours)
        return None
    ours.close()
    # Ctrl-C in a terminal is for the owner, which ends its server itself.
    os.setsid()
    return theirs


def _reap(exit_codes: dict[int, int]) -> None:
    """Note how each ended process ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        exit_codes[pid] = os.waitstatus_to_exitcode(status)


def _become(request: ForkRequest) -> None:
    """Run the module as if this process had been started for it."""
    os.setsid()
    _redirect(request.input, os.O_RDONLY, 0)
    _redirect(request.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1)
    _redirect(request.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    setproctitle(" ".join(["python", "-m", request.module, *request.arguments]))
    sys.argv = [request.module, *request.arguments]
    # It runs as __main__: runpy warns of a second copy under its name.
    sys.modules.pop(request.module, None)
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _redirect(path: str, flags: int, descriptor: int) -> None:
    opened = os.open(path, flags, 0o666)
    # Where the owner had closed the descriptor, the file has it already.
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    os.set_inheritable(descriptor, True)


if __name__ == "__main__":
    main(sys.argv[1:])
