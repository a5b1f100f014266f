"""`--daemon`: a daemon that continues when the terminal is closed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually_sync
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.integration


def command(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    started = [sys.executable, "-m", "cli.main", "controller", "--config", str(file), *options]
    return subprocess.run(started, capture_output=True, text=True, timeout=60, check=False)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def file(tmp_path: Path, zookeeper_connect: str) -> Path:
    properties = {
        "node.id": "1",
        "zookeeper.connect": zookeeper_connect,
        "antipode.site.name": "a",
        "antipode.site.number": "1",
        "antipode.grpc.listener": f"127.0.0.1:{free_port()}",
        "antipode.allow.plaintext": "true",
    }
    path = tmp_path / "controller.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def test_a_daemon_goes_on_apart_from_the_terminal_until_it_is_asked_to_stop(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    ended = command(file, "--log-file", str(log), "--daemon")
    assert ended.returncode == 0, ended.stderr
    (pid,) = map(int, re.findall(r"process (\d+) continues", ended.stdout))
    try:
        assert os.getsid(pid) == pid
        eventually_sync(lambda: "controller elected" in log.read_text())
        os.kill(pid, signal.SIGTERM)
        eventually_sync(lambda: has_ended(pid))
        assert "controller resigned" in log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_daemon_needs_a_log_and_a_good_configuration(file: Path, tmp_path: Path) -> None:
    assert "--daemon needs --log-file" in command(file, "--daemon").stderr
    wrong = command(file, "--daemon", "--log-file", str(tmp_path / "log"), "--override", "node.id=none")
    assert wrong.returncode == 2
    assert "node.id" in wrong.stderr
