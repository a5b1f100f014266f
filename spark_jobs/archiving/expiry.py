"""Retention of an archive: deletes the oldest ranges of its logs, by age or by size.

A manifest with the new starts of the logs is written first; the files go after it. A run that is
killed between the two leaves files that no manifest names, which the next run removes.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import ArchivedRange, Manifest, next_manifest
from spark_jobs.archiving.core.retention import NO_BOUND, Expiry, expiry
from spark_jobs.archiving.lock import ArchiveLock
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.session import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryReport:
    """The files and records that retention has deleted; for a dry run, that it would delete."""

    archive: str
    is_dry_run: bool
    ranges: tuple[ArchivedRange, ...]
    kept_bytes: int
    kept_compacted: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "bytes": sum(one.bytes for one in self.ranges)}


def expire(
    address: str,
    *,
    older_than_ms: int = NO_BOUND,
    bytes_max: int = NO_BOUND,
    is_dry_run: bool = False,
    progress: Progress = lambda _: None,
) -> ExpiryReport:
    """Let go ranges that were archived longer than `older_than_ms` ago, and the oldest ones until
    the archive has at most `bytes_max` bytes. Raises OperationalFailure without an archive, or
    while an archiver writes to it.
    """
    store = ArchiveStore.at(address)
    if is_dry_run:
        return _report(address, *_found(store, older_than_ms, bytes_max), is_dry_run=True)
    lock = ArchiveLock(store, progress)
    with lock.held():
        manifests, found = _found(store, older_than_ms, bytes_max)
        manifests = store.remove_unnamed(manifests, manifests[-1].format)
        if found.ranges:
            lock.check()
            now_ms = round(time.time() * 1000)
            following = next_manifest(manifests, manifests[-1].format, started_at_ms=now_ms)
            store.write_manifest(replace(following, log_starts=found.starts))
            lock.check()
            # these files alone: another archiver that has the lock by then may be writing others
            for path in sorted(file.path for one in found.ranges for file in one.files):
                store.remove(path)
    return _report(address, manifests, found, is_dry_run=False)


def _found(store: ArchiveStore, older_than_ms: int, bytes_max: int) -> tuple[list[Manifest], Expiry]:
    manifests = store.manifests()
    if not manifests:
        raise OperationalFailure(f"there is no archive at {store.address}: it holds no manifest")
    before_ms = NO_BOUND if older_than_ms == NO_BOUND else round(time.time() * 1000) - older_than_ms
    return manifests, expiry(manifests, archived_before_ms=before_ms, bytes_max=bytes_max)


def _report(address: str, manifests: list[Manifest], found: Expiry, *, is_dry_run: bool) -> ExpiryReport:
    held = sum(one.bytes for manifest in manifests for one in manifest.ranges)
    return ExpiryReport(
        archive=address,
        is_dry_run=is_dry_run,
        ranges=found.ranges,
        kept_bytes=held - found.bytes,
        kept_compacted=found.kept_compacted,
    )
