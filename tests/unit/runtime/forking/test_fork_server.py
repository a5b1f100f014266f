"""Children that a fork server forks: as children that are started by themselves, with modules that
were imported once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtime.children import Child, _started, forked_by
from runtime.forking.fork_server import EXIT_CODE_UNKNOWN, ForkRequest, ForkServer, ForkServerEnded
from runtime.process import OperationalFailure
from tests.support.eventually import eventually_sync

IMPORTED = "with open('imported', 'a') as file: file.write('x')\n"
PART = """
import json, os, signal, sys, threading
import imported_once
from runtime.forking.fork_server import ForkRequest, own_fork_server

about = {"arguments": sys.argv[1:], "directory": os.getcwd(), "session": os.getsid(0), "pid": os.getpid(),
         "variable": os.environ.get("VARIABLE"), "descriptors": len(os.listdir("/proc/self/fd")),
         "threads": threading.active_count(), "input": sys.stdin.read()}
match sys.argv[1]:
    case "waits":
        print(json.dumps(about), flush=True)
        signal.pause()
    case "fails":
        raise SystemExit("no such port")
    case "forks":
        server = own_fork_server([])
        forked = server.fork(ForkRequest(module="part", arguments=["ends"], directory=os.getcwd(),
            output=sys.argv[2], errors=sys.argv[2], environment=dict(os.environ)))
        while forked.poll() is None:
            pass
        print(json.dumps({**about, "code": forked.poll()}), flush=True)
    case "ends":
        print("forked by a forked one", flush=True)
        raise SystemExit(3)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "imported_once.py").write_text(IMPORTED)
    (tmp_path / "part.py").write_text(PART)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    started = ForkServer.start(["imported_once"])
    yield started
    started.close()


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.send(signal.SIGKILL)


def started(server: ForkServer, children: list[Child], directory: Path, *arguments: str) -> Child:
    child = Child(
        name="sample",
        command=[sys.executable, "-m", "part", *arguments],
        directory=directory / "-".join(arguments[:1]),
        log=directory / f"{arguments[0]}.log",
        environment={"VARIABLE": "given"},
    )
    children.append(child)
    with forked_by(server):
        child.start()
    return child


def printed(child: Child) -> Any:
    return json.loads(eventually_sync(lambda: child.log.exists() and child.log.read_text().strip()))


def test_a_forked_child_is_as_one_that_was_started(server: ForkServer, tmp_path: Path, children: list[Child]) -> None:
    child = started(server, children, tmp_path, "waits", "last argument")
    about = printed(child)
    pid = child.pid()
    assert about == {
        "arguments": ["waits", "last argument"],
        "directory": str(tmp_path / "waits"),
        "session": pid,
        "pid": pid,
        "variable": "given",
        "descriptors": 4,  # its input, its two outputs, and the listing itself
        "threads": 1,
        "input": "",
    }
    assert " ".join(psutil.Process(pid).cmdline()).strip() == "python -m part waits last argument"
    assert child.stop(timeout_ms=60_000)
    assert (child.pid(), child.exit_code()) == (None, -signal.SIGTERM)


def test_modules_are_imported_once(server: ForkServer, tmp_path: Path, children: list[Child]) -> None:
    for number in range(2):
        printed(started(server, children, tmp_path / str(number), "waits"))
    assert (tmp_path / "imported").read_text() == "x"


def test_another_hand_finds_the_child_by_its_title(server: ForkServer, tmp_path: Path, children: list[Child]) -> None:
    child = started(server, children, tmp_path, "waits", "a path of its own")
    printed(child)
    process = _started.pop(child.directory / "pid")
    assert child.pid() == process.pid
    child.send(signal.SIGKILL)
    eventually_sync(lambda: process.poll() == -signal.SIGKILL)
    assert child.pid() is None


def test_the_reason_and_the_code_of_a_child_that_fails_are_kept(
    server: ForkServer, tmp_path: Path, children: list[Child]
) -> None:
    child = started(server, children, tmp_path, "fails")
    assert child.wait_ended(timeout_ms=60_000)
    assert (child.log_tail(), child.exit_code()) == ("no such port", 1)


def test_a_forked_process_may_have_a_fork_server_of_its_own(
    server: ForkServer, tmp_path: Path, children: list[Child]
) -> None:
    output, inner = tmp_path / "outer.log", tmp_path / "inner.log"
    environment = dict(os.environ)
    request = ForkRequest(
        module="part",
        arguments=["forks", str(inner)],
        directory=str(tmp_path),
        output=str(output),
        errors=str(output),
        environment=environment,
        has_server=True,
    )
    process = server.fork(request)
    eventually_sync(lambda: process.poll() is not None)
    assert process.poll() == 0, output.read_text()
    assert json.loads(output.read_text())["code"] == 3
    assert inner.read_text() == "forked by a forked one\n"
    assert (tmp_path / "imported").read_text() == "x"


def test_without_its_fork_server_a_child_goes_on_and_the_next_one_starts_by_itself(
    server: ForkServer, tmp_path: Path, children: list[Child]
) -> None:
    first = started(server, children, tmp_path / "first", "waits")
    printed(first)
    server.close()
    assert first.pid() is not None
    second = started(server, children, tmp_path / "second", "waits")
    assert printed(second)["arguments"] == ["waits"]
    first.send(signal.SIGKILL)
    assert first.wait_ended(timeout_ms=60_000)
    assert first.exit_code() == EXIT_CODE_UNKNOWN


def test_a_long_title_is_whole_where_the_environment_is_small(
    tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process recognises a child by the last argument of its title."""
    (tmp_path / "imported_once.py").write_text(IMPORTED)
    (tmp_path / "part.py").write_text(PART)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.chdir(tmp_path)
    server = ForkServer.start(["imported_once"])
    try:
        child = started(server, children, tmp_path, "waits", "/a directory" * 100)
        printed(child)
        process = _started.pop(child.directory / "pid")
        assert child.pid() == process.pid
    finally:
        server.close()


def test_a_fork_server_that_does_not_answer_is_an_error_and_nothing_starts_twice(
    tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silent server may have forked the process."""
    monkeypatch.setattr("runtime.forking.fork_server._ANSWERS_WITHIN_S", 0.1)
    ours, theirs = socket.socketpair()
    with theirs, closing(ForkServer(ours)) as silent:
        with pytest.raises(OperationalFailure, match="has not answered within"):
            started(silent, children, tmp_path, "waits")
        with pytest.raises(ForkServerEnded):
            silent.exit_code(1)
    assert children[0].pid() is None
