"""Processes, clocks and names of other hosts, with a shell script that plays ssh."""

from __future__ import annotations

import signal
import stat
import sys
from pathlib import Path

import pytest

from dr.drill.environment import Environment, EnvironmentHost, EnvironmentProcess
from dr.drill.faults import HostFaults, ProcessFaults
from dr.drill.remote_hosts import RemoteChild, RemoteShell
from runtime.process import OperationalFailure

PROGRAM = "import pathlib, signal, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """Takes a host's name and a line, notes the line, and runs it here with a `date` of its own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "date").write_text('#!/bin/sh\ncase "$1" in +%s) echo 1000;; *) echo "$@" >> "$DATES";; esac\n')
    script = folder / "ssh"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = far ] || {{ echo "no route to $1" >&2; exit 255; }}\n'
        f'echo "$2" >> {tmp_path}/lines\nDATES={tmp_path}/dates PATH={folder}:$PATH exec sh -c "$2"\n'
    )
    for file in (folder / "date", script):
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return script


@pytest.fixture
def process(tmp_path: Path) -> EnvironmentProcess:
    directory = tmp_path / "process"
    directory.mkdir()
    command = (sys.executable, "-c", PROGRAM, str(tmp_path / "marker"))
    return EnvironmentProcess(name="broker-1", dir=directory, log=directory / "log", command=command, host="far")


def environment(ssh: Path, host: str = "far") -> Environment:
    return Environment(sites={}, hosts={"far": EnvironmentHost(command=(str(ssh), host))})


def test_a_process_of_another_host_is_started_stopped_killed_and_restored(
    ssh: Path, process: EnvironmentProcess
) -> None:
    known = environment(ssh)
    child, faults = known.child(process), ProcessFaults(known)
    assert isinstance(child, RemoteChild)
    assert child.pid() is None
    assert not child.send(signal.SIGTERM)
    faults.start([process])
    first = child.pid()
    assert first is not None
    faults.stop([process])
    faults.fill_disk([process])
    limits = Path(f"/proc/{first}/limits").read_text(encoding="ascii")
    assert "Max file size             0 " in limits
    faults.kill([process], may_stay_down=False)
    assert child.pid() is None
    assert faults.restore(starts_ended=True) == []
    second = child.pid()
    assert second not in (None, first)
    assert child.stop()
    assert child.pid() is None


def test_a_reused_pid_is_never_hit(ssh: Path, process: EnvironmentProcess) -> None:
    (process.dir / "pid").write_text("1\n", encoding="ascii")
    assert environment(ssh).child(process).pid() is None


def test_clocks_are_set_back_at_the_end(ssh: Path, tmp_path: Path) -> None:
    faults = HostFaults(environment(ssh))
    faults.step_clock("far", 3600)
    faults.step_clock("far", -60)
    assert faults.restore() == []
    assert faults.restore() == []
    dates = (tmp_path / "dates").read_text(encoding="ascii").split()
    assert [date for date in dates if date.startswith("@")] == ["@4600", "@940", "@-2540"]


def test_names_are_broken_by_a_line_for_each_and_restored(
    ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[str]()
    monkeypatch.setattr(RemoteShell, "run", lambda self, line, **_: lines.append(line) or (0, ""))
    faults = HostFaults(environment(ssh))
    faults.break_names("far", ["a1.example.org"])
    assert faults.restore() == []
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n", encoding="ascii")
    monkeypatch.undo()
    shell = RemoteShell("far", (str(ssh), "far"))
    shell.run(lines[0].replace("/etc/hosts", str(hosts)))
    assert hosts.read_text(encoding="ascii").splitlines()[1] == "192.0.2.1 a1.example.org # antipode-drill"
    shell.run(lines[1].replace("/etc/hosts", str(hosts)))
    assert hosts.read_text(encoding="ascii") == "127.0.0.1 localhost\n"


def test_a_host_that_does_not_answer_is_named_and_the_rest_is_restored(ssh: Path) -> None:
    faults = HostFaults(environment(ssh, host="lost"))
    faults.clock_steps["far"] = 5
    (problem,) = faults.restore()
    assert "host far" in problem
    assert "no route to lost" in problem
    with pytest.raises(OperationalFailure, match="host 'near' is not in the environment; there: far"):
        faults.step_clock("near", 1)
