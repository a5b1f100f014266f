"""The producers' state at an offset of the log: the newest valid snapshot at or below it, then the
batches after it.

Used when a log is opened and after a truncation. A truncation also removes the snapshots above the
log's new end: when other batches are appended there, such a snapshot would describe producers that
did not write them.

Callers: broker/log/loading.py, broker/log/partition_log.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from broker.log.core.producer_state import REMEMBERED_BATCHES, ProducerStates
from broker.log.core.producer_values import DuplicateSequence
from broker.log.errors import storage_errors
from broker.log.markers import read_marker
from broker.log.producer_snapshots import read_snapshot
from broker.log.segments.segment import Segment
from broker.log.segments.segment_names import SNAPSHOT_SUFFIX, file_name, numbered_offset
from broker.log.segments.transaction_index import AbortedTransaction
from runtime.disk import Buffer, Disk
from wire.batches.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

KEPT_SNAPSHOTS: Final = 2
"""Snapshots that are kept though no segment begins at their offset."""


class Restored(NamedTuple):
    """One sentence for each damaged snapshot, and the offset of the one that was used, -1 for
    none.
    """

    notes: list[str]
    snapshot_offset: int


def restore_producers(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    producers: ProducerStates,
    end_offset: int,
    *,
    names: Iterable[str] | None = None,
    remove: Callable[[str], None] | None = None,
) -> Restored:
    """Bring `producers` to the state at `end_offset`, where `segments` end; `names` are the names
    of the directory's files, if the caller has them.

    `remove` takes snapshots off the disk, now or before anything is appended.
    """
    remove = remove or partial(_remove, disk)
    notes: list[str] = []
    # empty first: the state may have been filled before a truncation
    producers.restore([])
    used = -1
    # with no snapshot every batch that the log still has counts
    start = segments[0].base_offset if segments else end_offset
    if names is None:
        with storage_errors("opening", directory):
            names = [entry.name for entry in disk.entries(directory)]
    for offset in reversed(_settle_snapshots(remove, directory, segments, end_offset, names)):
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        entries = read_snapshot(disk, path)
        if entries is not None:
            producers.restore(entries)
            start = used = offset
            break
        notes.append(f"{path} is damaged and not used")
        remove(path)
    replay = ProducerReplay(producers)
    for segment in segments:
        # a segment of no bytes may be preallocated: nothing is there to be read
        if start < segment.next_offset and segment.size_bytes:
            for header, content in segment.batches_of_producers(start):
                replay.take(header, content)
    replay.settle()
    return Restored(notes, used)


class ProducerReplay:
    """Replays stored batches, in order, into the state; `settle` must follow the last one.

    Outside transactions only a producer's newest few batches affect the state, so batches wait
    until they are known to be among them.
    """

    def __init__(self, producers: ProducerStates) -> None:
        self._producers = producers
        self._waiting: dict[int, deque[BatchHeader]] = {}

    def take(self, header: BatchHeader, content: Buffer) -> AbortedTransaction | None:
        """Like `replay_batch`, immediately or later; only control batches need `content`."""
        producer_id = header.producer_id
        # without transactions only the last batches of a producer count, so earlier ones are never
        # replayed
        if not header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
            if producer_id in self._waiting:
                self._waiting[producer_id].append(header)
            else:
                self._waiting[producer_id] = deque((header,), maxlen=REMEMBERED_BATCHES)
            return None
        # the earlier ones first: sequences of one producer must be replayed in the log's order
        for earlier in self._waiting.pop(producer_id, ()):
            replay_batch(self._producers, earlier, b"")
        return replay_batch(self._producers, header, content)

    def settle(self) -> None:
        """Apply the waiting batches to the state."""
        for waiting in self._waiting.values():
            for header in waiting:
                replay_batch(self._producers, header, b"")
        self._waiting.clear()


def replay_batch(producers: ProducerStates, header: BatchHeader, content: Buffer) -> AbortedTransaction | None:
    """Take a stored batch into the state unchecked; the transaction index entry when it is an abort
    marker.
    """
    # replay is unchecked: the log is the truth, also where it breaks today's rules
    if not header.is_control:
        change = producers.prepare_batch(header, header.base_offset, is_checked=False)
        if not isinstance(change, DuplicateSequence):
            producers.apply(change)
        return None
    marker = read_marker(content, 0, header)
    if marker is None:
        return None
    change = producers.prepare_marker(header, header.base_offset, marker, is_checked=False)
    completed = change.completed
    producers.apply(change)
    if completed is None or not completed.is_aborted:
        return None
    stable = producers.last_stable_offset_after(completed)
    return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)


def _settle_snapshots(
    remove: Callable[[str], None],
    directory: str,
    segments: list[Segment],
    end_offset: int,
    names: Iterable[str],
) -> list[int]:
    """Offsets of usable snapshots; those above the end and those that no start would use are
    removed.
    """
    found = [numbered_offset(name, SNAPSHOT_SUFFIX) for name in names]
    usable = sorted(offset for offset in found if offset is not None)
    bases = {segment.base_offset for segment in segments}
    kept = {offset for offset in usable if offset <= end_offset}
    # rolls leave one snapshot for each segment; a stop leaves one at the end of the log
    kept = {offset for offset in kept if offset in bases} | set(sorted(kept)[-KEPT_SNAPSHOTS:])
    for offset in usable:
        if offset not in kept:
            remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    return sorted(kept)


def drop_snapshots_above(disk: Disk, directory: str, end_offset: int) -> None:
    """Remove snapshots of offsets above the log's end."""
    with storage_errors("opening", directory):
        names = [entry.name for entry in disk.entries(directory)]
    for name in names:
        offset = numbered_offset(name, SNAPSHOT_SUFFIX)
        if offset is not None and offset > end_offset:
            _remove(disk, f"{directory}/{name}")


def _remove(disk: Disk, path: str) -> None:
    with storage_errors("removing", path):
        disk.unlink(path)
