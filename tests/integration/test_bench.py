"""The benchmark itself, small: every section of our side, and an interruption that leaves nothing
behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.measuring.section_figures import SECTIONS
from bench.peers.long_line import may_be_made
from tests.support.eventually import eventually_sync

REPOSITORY = Path(__file__).parents[2]
TINY = ("--scale", "0.002", "--repeats", "1", "--no-peer", "--output", "json")
WITHIN_S = 400
OF_SITES = ("replicated", "partitions", "compaction", "recovery")
BEHIND_LINES = ("mirror-far", "mirror-lossy")
OF_LINKS = ("mirror-groups", "mirror-transactions", "recovery-time", "reconcile")
OF_LINES = (*OF_LINKS, *(BEHIND_LINES if may_be_made() else ()))
OF_BROKERS = tuple(name for name in SECTIONS if name not in (*OF_SITES, *OF_LINKS, *BEHIND_LINES))


def _start(results: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *TINY, "--results", str(results), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def is_running(process: psutil.Process) -> bool:
    """A process that has ended, but whose exit code was not read, does not run."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "sections",
    [OF_BROKERS, OF_SITES, OF_LINES],
    ids=["of-brokers", "of-sites", "of-lines"],
)
@pytest.mark.long
@pytest.mark.timeout(WITHIN_S + 20)
def test_every_section_is_measured_and_kept_as_json(tmp_path: Path, sections: tuple[str, ...]) -> None:
    output, errors = (running := _start(tmp_path, "--only", ",".join(sections))).communicate(timeout=WITHIN_S)
    assert running.returncode == 0, errors
    document = json.loads(output)
    assert {row["section"] for row in document["rows"]} == set(sections)
    assert all(row["ours"] is not None and row["theirs"] is None for row in document["rows"])
    assert document["machine"]["cores"] == os.cpu_count()
    (file,) = tmp_path.iterdir()  # the brokers' data is gone
    assert file == Path(document["file"])
    assert json.loads(file.read_text(encoding="utf-8"))["samples"] == document["samples"]


@pytest.mark.long
@pytest.mark.timeout(WITHIN_S + 20)
def test_interrupted_while_brokers_run_it_ends_them_and_leaves_no_file(tmp_path: Path) -> None:
    running = _start(tmp_path, "--only", "mirror")
    try:
        eventually_sync(lambda: list(tmp_path.glob("run-*/mirror-antipode-0/environment.json")), 180_000)
        started = psutil.Process(running.pid).children(recursive=True)
        assert len(started) > 4  # the front door, two ZooKeepers, two brokers
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=WITHIN_S)
    finally:
        running.kill()
    assert running.returncode == 1, errors
    assert "interrupted" in errors
    assert [process for process in started if is_running(process)] == []
    assert list(tmp_path.iterdir()) == []
