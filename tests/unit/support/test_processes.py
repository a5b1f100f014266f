"""Process control in tests: readiness, ends, signals, and that nothing stays behind."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually_sync
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
