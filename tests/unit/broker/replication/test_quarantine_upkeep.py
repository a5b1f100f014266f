"""A broker's upkeep of its quarantine: it announces an entry before it deletes the files, and keeps
files that have changed meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication import quarantine_upkeep
from broker.replication.quarantine import Quarantine
from broker.replication.quarantine_upkeep import QuarantineUpkeep
from broker.replication.truncated_records import TruncatedRecords, path_of
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.logs_on_disk import NOW_MS
from tests.unit.broker.replication.test_quarantine import ROOM, filled, keep

RETENTION_MS = 1_000
GRACE_MS = 100


class Warnings:
    """Collects the events of the module's log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(quarantine_upkeep, "log", self)

    def warning(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def upkeep(directory: Path, quarantine: Quarantine, clock: ManualClock, *, bytes_max: int = ROOM) -> QuarantineUpkeep:
    settings = SimpleNamespace(quarantine_retention_ms=RETENTION_MS, truncated_bytes_kept_max=bytes_max)
    configs: Any = SimpleNamespace(current=settings)
    logs: Any = SimpleNamespace(directories=[SimpleNamespace(path=str(directory))])
    return QuarantineUpkeep(configs, logs, quarantine, clock)


async def test_an_entry_is_announced_before_it_expires_and_then_its_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings, clock = Warnings(monkeypatch), ManualClock(NOW_MS)
    quarantine = Quarantine(RealDisk(), bytes_max=ROOM)
    entry = await keep(quarantine, filled(tmp_path, b"a", b"b"), 0)
    job = upkeep(tmp_path, quarantine, clock)
    await job.look()
    assert (quarantine.use.entries, quarantine.use.size_bytes) == (1, entry.size_bytes)
    assert quarantine.use.expires_in_ms(clock.now_ms()) == RETENTION_MS
    assert warnings.events == []
    clock.advance(RETENTION_MS - GRACE_MS)
    await job.look()
    ((event, fields),) = warnings.events
    assert (event, fields["name"]) == ("quarantine entry expires soon", entry.name)
    assert "antipode.quarantine.retention.ms" in fields["remedy"]
    clock.advance(GRACE_MS)
    await job.look()
    assert warnings.names == ["quarantine entry expires soon", "quarantine entry expired"]
    assert quarantine.entries([str(tmp_path)]) == []
    assert [name for name in os.listdir(tmp_path) if name.startswith("0.cut.")] == []


async def test_all_entries_that_expire_together_are_deleted_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings, clock = Warnings(monkeypatch), ManualClock(NOW_MS)
    monkeypatch.setattr(quarantine_upkeep, "EXPIRED_AT_ONCE", 2)
    quarantine, log = Quarantine(RealDisk(), bytes_max=ROOM), filled(tmp_path, b"a", b"b")
    for number in range(5):
        await keep(quarantine, log, 0, topic_id=bytes([number] * 16))
    job = upkeep(tmp_path, quarantine, clock)
    for passed_ms in (RETENTION_MS - GRACE_MS, GRACE_MS):
        clock.advance(passed_ms)
        await job.look()
    assert warnings.names.count("quarantine entry expired") == 5
    assert [name for name in os.listdir(tmp_path) if name.startswith("0.cut.")] == []


async def test_a_file_of_truncated_records_that_grows_before_its_deletion_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings, clock = Warnings(monkeypatch), ManualClock(NOW_MS)
    truncated = TruncatedRecords(RealDisk(), bytes_max=ROOM)
    log = filled(tmp_path, b"a", b"b", b"c")
    await truncated.keep(log, 2)
    path = Path(path_of(log))
    os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    job = upkeep(tmp_path, truncated.quarantine, clock)
    clock.advance(RETENTION_MS)
    await job.look()
    clock.advance(GRACE_MS)
    kept = truncated.quarantine.kept

    def and_grow(directories: Any) -> Any:
        """Lists the entries; before the first deletion, more records are truncated."""
        found = kept(directories)
        monkeypatch.setattr(truncated.quarantine, "kept", kept)
        asyncio.run(truncated.keep(log, 1))
        return found

    monkeypatch.setattr(truncated.quarantine, "kept", and_grow)
    await job.look()
    assert warnings.names == ["quarantine entry expires soon"]
    assert path.name in os.listdir(tmp_path)


async def test_a_partition_that_is_almost_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings, clock = Warnings(monkeypatch), ManualClock(NOW_MS)
    quarantine = Quarantine(RealDisk(), bytes_max=ROOM)
    entry = await keep(quarantine, filled(tmp_path, b"a", b"b"), 0)
    await upkeep(tmp_path, quarantine, clock, bytes_max=entry.size_bytes).look()
    ((event, fields),) = warnings.events
    assert (event, fields["partition"], fields["percent"]) == ("quarantine is almost full", "t-0", 100)


async def test_a_disk_that_fails_is_reported_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings, clock = Warnings(monkeypatch), ManualClock(NOW_MS)
    quarantine = Quarantine(RealDisk(), bytes_max=ROOM)
    job = upkeep(tmp_path / "gone", quarantine, clock)
    await job.look()
    assert warnings.names == ["quarantine entries could not be checked"]
    (tmp_path / "gone").mkdir()
    await job.look()
    assert warnings.names == ["quarantine entries could not be checked"]
