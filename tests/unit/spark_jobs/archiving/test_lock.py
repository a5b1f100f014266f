"""The lock of an archive, for archivers of two machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs.archiving.lock import ArchiveLock
from spark_jobs.archiving.store import ArchiveStore

LEASE_MS = 2_000


def test_an_archiver_of_another_machine_is_refused_by_one_that_runs(tmp_path: Path) -> None:
    store = ArchiveStore.at(str(tmp_path))
    holder, other = ArchiveLock(store, lease_ms=LEASE_MS), ArchiveLock(store, lease_ms=LEASE_MS)
    other._host = "elsewhere"
    with holder.held():
        with pytest.raises(OperationalFailure, match="the archive is in use by process"), other.held():
            pass
        holder.check()
