"""The journal: on disk line by line, readable after a crash."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from dr.failover.journal import Journal, read_journal
from runtime.process import OperationalFailure
from tests.support.clock import ManualClock


def test_lines_are_on_disk_before_the_next_thing_happens(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "runs" / "journal"
    with Journal(path, clock) as journal:
        journal.write("step begins", step="fence")
        assert [line["event"] for line in read_journal(path)] == ["journal opened", "step begins"]


def test_the_first_line_of_every_run_says_who_acts(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3."""
    path = tmp_path / "journal"
    monkeypatch.setenv("LOGNAME", "ops")
    monkeypatch.setattr("sys.argv", ["antipode", "failover", "a b"])
    for asked_by in ("", "anna"):
        monkeypatch.setenv("SUDO_USER", asked_by)
        with Journal(path, clock):
            pass
    first, second = read_journal(path)
    assert first["who"] == f"ops@{socket.gethostname()}"
    assert (first["command"], first["pid"]) == ("antipode failover 'a b'", os.getpid())
    assert second["who"].endswith("(sudo by anna)")


def test_a_torn_last_line_is_left_out_and_a_broken_run_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "journal"

    def run() -> None:
        with Journal(path, clock) as journal:
            journal.write("step begins", step="drain")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        run()
    with path.open("a") as file:
        file.write('{"at_ms": 1, "ev')
    assert [line["event"] for line in read_journal(path)] == ["journal opened", "step begins", "run interrupted"]


def test_a_journal_that_cannot_be_written_is_one_message(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationalFailure, match="cannot be written"):
        Journal(tmp_path / "file" / "journal", clock)


def test_a_journal_on_a_full_disk_is_one_message_before_the_run_begins(clock: ManualClock) -> None:
    with pytest.raises(OperationalFailure, match="/dev/full cannot be written: No space left on device"):
        Journal(Path("/dev/full"), clock).__enter__()


def test_a_run_whose_disk_becomes_full_goes_on_without_its_journal(tmp_path: Path, clock: ManualClock) -> None:
    """Otherwise the run would end with writers stopped at both sites."""
    path = tmp_path / "journal"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Journal(path, clock) as journal:
        journal.write("step begins", step="fence")
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        try:
            journal.write("step ends", step="fence")
            journal.write("step begins", step="drain")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
    assert [line["event"] for line in read_journal(path)] == ["journal opened", "step begins"]


def test_the_lines_of_a_later_run_are_read_behind_a_torn_one(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "journal"
    path.write_text('{"at_ms": 1, "event": "journal opened"}\n{"at_ms": 2, "ev')
    with Journal(path, clock) as journal:
        journal.write("run begins")
    assert [line["event"] for line in read_journal(path)] == ["journal opened", "journal opened", "run begins"]
