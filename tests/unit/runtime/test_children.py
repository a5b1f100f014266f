"""Child processes by pid file: started once, found by any process, ended reliably, never confused
with another process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.children import WRITTEN_BYTES_MIN, Child, Patience, WorkDone, _started
from runtime.process import OperationalFailure
from tests.support.eventually import eventually_sync

WAIT_FOREVER = "import signal; print('up', flush=True); signal.pause()"
IGNORE_TERM = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"

LISTEN = """
import signal, socket, sys
ballast = b"x" * (256 << 20)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
signal.pause()
"""
"""With so much memory that its end takes a while."""


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.stop(timeout_ms=100)


def _child(directory: Path, code: str, children: list[Child]) -> Child:
    child = Child(
        name="sample",
        command=[sys.executable, "-c", code],
        directory=directory / "sample",
        log=directory / "sample.log",
    )
    children.append(child)
    return child


def _wait_for_output(child: Child) -> None:
    with subprocess.Popen(
        ["tail", "-F", "-n", "+1", child.log], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"up\n"
        tail.kill()


def test_a_child_is_found_by_its_pid_file_and_stopped(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, WAIT_FOREVER, children)
    pid = child.start()
    _wait_for_output(child)
    assert child.pid() == pid
    assert child.stop(timeout_ms=60_000)
    assert child.pid() is None
    assert child.exit_code() == -signal.SIGTERM


def test_a_child_is_not_started_twice(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, WAIT_FOREVER, children)
    child.start()
    with pytest.raises(OperationalFailure, match="sample is running already"):
        child.start()


def test_another_hand_finds_and_ends_the_child(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, WAIT_FOREVER, children)
    pid = child.start()
    _wait_for_output(child)
    popen = _started.pop(child.directory / "pid")
    assert child.pid() == pid
    child.send(signal.SIGKILL)
    popen.wait()
    assert child.pid() is None


def test_a_reused_pid_is_not_taken_for_the_child(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, WAIT_FOREVER, children)
    child.directory.mkdir()
    (child.directory / "pid").write_text(f"{os.getpid()}\n")
    assert child.pid() is None
    assert not child.send(signal.SIGTERM)


def test_a_child_of_another_parent_with_the_pid_of_an_ended_child_runs(
    tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = _child(tmp_path / "ended", WAIT_FOREVER, children)
    ended.start()
    assert ended.stop(timeout_ms=60_000)
    child = _child(tmp_path / "other", WAIT_FOREVER, children)
    pid = child.start()
    _wait_for_output(child)
    popen = _started.pop(child.directory / "pid")
    monkeypatch.setattr(_started[ended.directory / "pid"], "pid", pid)
    assert child.pid() == pid
    assert child.exit_code() is None
    child.send(signal.SIGTERM)
    assert popen.wait() == -signal.SIGTERM


def test_a_child_that_ignores_the_request_is_killed_at_the_deadline(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, IGNORE_TERM, children)
    child.start()
    _wait_for_output(child)
    assert not child.stop(timeout_ms=50)
    assert child.exit_code() == -signal.SIGKILL


def test_the_deadline_moves_while_the_child_works_and_not_beyond_the_limit() -> None:
    def ends_at_s(works_until_s: int, *, limit_ms: int = 60_000, written_bytes: int = WRITTEN_BYTES_MIN) -> int:
        patience, now_s = Patience(timeout_ms=10_000, limit_ms=limit_ms), 0
        while not patience.is_over(now_s * 1000, WorkDone(min(now_s, works_until_s) * written_bytes, 7)):
            now_s += 1
        return now_s

    assert ends_at_s(0) == 10
    assert ends_at_s(25) == 35
    assert ends_at_s(99) == 60
    assert ends_at_s(99, limit_ms=0) == 10
    assert ends_at_s(99, written_bytes=4096) == 10


def test_a_child_that_closes_files_works() -> None:
    patience = Patience(timeout_ms=10_000, limit_ms=60_000)
    assert not any(patience.is_over(now_s * 1000, WorkDone(0, 100 - now_s)) for now_s in range(60))


def test_the_work_of_a_child_is_what_it_writes_and_closes(tmp_path: Path, children: list[Child]) -> None:
    code = """
import os, signal, sys
opened = [open(os.devnull) for _ in range(5)]
def close(*_):
    opened.pop().close()
    open("file", "wb").write(bytes(100_000))
    print("up", flush=True)
signal.signal(signal.SIGUSR1, close)
print("up", flush=True)
while True: signal.pause()
"""
    child = _child(tmp_path, code, children)
    child.start()
    _wait_for_output(child)
    before = child._work_done()
    child.send(signal.SIGUSR1)
    eventually_sync(lambda: child.log.read_text() == "up\nup\n")
    after = child._work_done()
    assert before is not None
    assert after is not None
    assert after.written_bytes > before.written_bytes
    assert after.open_files == before.open_files - 1


def test_a_paused_child_can_be_stopped(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, WAIT_FOREVER, children)
    child.start()
    _wait_for_output(child)
    child.send(signal.SIGSTOP)
    assert child.stop(timeout_ms=60_000)


def test_the_log_tail_tells_why_a_child_ended(tmp_path: Path, children: list[Child]) -> None:
    child = _child(tmp_path, "raise SystemExit('no such port')", children)
    child.start()
    assert child.wait_ended(timeout_ms=60_000)
    assert child.log_tail() == "no such port"
    assert child.exit_code() == 1


def test_a_child_of_another_parent_has_given_its_port_back_when_it_is_stopped(
    tmp_path: Path, children: list[Child]
) -> None:
    child = _child(tmp_path, LISTEN, children)
    child.start()
    popen = _started.pop(child.directory / "pid")
    eventually_sync(lambda: child.log_tail().isdecimal(), 20_000)
    child.stop()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(child.log_tail())))
    assert popen.poll() is not None
