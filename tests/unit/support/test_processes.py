"""Process control in tests: readiness, ends, signals, and that nothing stays behind."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes

SERVING = "import time, sys; print('serving', flush=True); time.sleep(600)"


def _python(code: str, marker: Path) -> list[str]:
    return [sys.executable, "-c", code, str(marker)]


def test_readiness_is_read_from_the_log(processes: Processes, tmp_path: Path) -> None:
    process = processes.run_command("sleeper", _python(SERVING, tmp_path), tmp_path)
    assert process.wait_logged("serv(ing)")[1] == "ing"
    process.stop()
    assert not process.is_running
    assert process.exit_code == -15


def test_a_process_that_dies_before_it_is_ready_fails_with_its_log(processes: Processes, tmp_path: Path) -> None:
    process = processes.run_command("broken", _python("print('no disk'); raise SystemExit(3)", tmp_path), tmp_path)
    with pytest.raises(AssertionError, match=r"exit code 3(.|\n)*no disk"):
        process.wait_ready(lambda: False)


def test_a_killed_process_can_be_started_again(processes: Processes, tmp_path: Path) -> None:
    process = processes.run_command("sleeper", _python(SERVING, tmp_path), tmp_path)
    first = process.pid
    process.kill()
    assert not process.is_running
    process.start()
    assert process.pid != first


def test_a_paused_process_stands_still_until_resumed(processes: Processes, tmp_path: Path) -> None:
    process = processes.run_command("sleeper", _python(SERVING, tmp_path), tmp_path)
    process.wait_logged("serving")
    system = psutil.Process(process.pid)
    process.pause()
    eventually_sync(lambda: system.status() == psutil.STATUS_STOPPED)
    process.resume()
    eventually_sync(lambda: system.status() != psutil.STATUS_STOPPED)


def test_ending_all_leaves_no_process_behind_paused_ones_included(tmp_path: Path) -> None:
    owned = Processes()
    started = [
        owned.run_command(f"sleeper-{number}", _python(SERVING, tmp_path), tmp_path / str(number)) for number in (1, 2)
    ]
    pids = [process.pid for process in started]
    started[0].pause()
    owned.end_all()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_part_that_is_forked_ends_and_starts_again_as_any_process(processes: Processes, tmp_path: Path) -> None:
    broker = LoneBroker(processes, tmp_path)
    first = broker.process.pid
    assert psutil.Process(first).ppid() != psutil.Process().pid, "a template forked it"
    broker.process.kill()
    assert broker.process.exit_code == -9
    broker.restart()
    assert broker.process.pid != first
    broker.process.stop()
    assert broker.process.exit_code == 0


def test_a_part_that_cannot_start_says_so_in_its_log(processes: Processes, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.pairs.lone_mirror", "fetch.min.bytes=few"]
    process = processes.run_command("mirror", command, tmp_path)
    assert process.wait_ended() != 0
    assert "error: configuration" in process.log_text()
