"""The `.txnindex` of a segment: which transactions that ended here were aborted, so that readers
can skip them.

Kafka's format, version 0: one entry of 34 bytes for each abort marker in the segment. Written when
the marker is appended (on a full disk later, at the latest with the segment's flush),
read by read-committed fetches. Few segments have one: the file exists only once there is an entry.

Callers: broker/log/segments/segment.py, broker/log/partition_log.py.
"""

from __future__ import annotations

import contextlib
import os
from struct import Struct
from typing import Final, NamedTuple

from broker.log.errors import DiskFull, storage_errors
from runtime.disk import Disk, write_all

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """Producer, first record and marker of an aborted transaction, and the last stable offset after
    it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, by the offset of their markers."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._waiting: list[AbortedTransaction] = []
        """Entries for which the disk had no space."""

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry. On a full disk it waits in memory, because its marker is in the log."""
        self._waiting.append(transaction)
        with contextlib.suppress(DiskFull):
            self.write()

    def write(self) -> None:
        """Bring entries that wait in memory to the file."""
        while self._waiting:
            with storage_errors("writing", self.path):
                descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
                try:
                    # a torn entry of a crash is overwritten
                    end = self._disk.size(descriptor) // _ENTRY.size * _ENTRY.size
                    write_all(self._disk, descriptor, [_ENTRY.pack(_VERSION, *self._waiting[0])], end)
                finally:
                    self._disk.close(descriptor)
            self._waiting.pop(0)

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of the markers; whole ones only."""
        return [*self._stored(), *self._waiting]

    def _stored(self) -> list[AbortedTransaction]:
        with storage_errors("reading", self.path):
            try:
                descriptor = self._disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
            try:
                content = self._disk.pread(descriptor, self._disk.size(descriptor), 0)
            finally:
                self._disk.close(descriptor)
        whole = content[: len(content) // _ENTRY.size * _ENTRY.size]
        return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(whole) if entry[0] == _VERSION]

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker lies at or above `offset`."""
        self._waiting = [entry for entry in self._waiting if entry.last_offset < offset]
        entries = self._stored()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._replace(kept)

    def clear(self) -> None:
        """Forget all, to be written anew by recovery."""
        self._waiting = []
        if self._stored():
            self._replace([])

    def flush(self) -> None:
        """Make the entries durable."""
        self.write()
        with storage_errors("flushing", self.path):
            try:
                descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            try:
                self._disk.fdatasync(descriptor)
            finally:
                self._disk.close(descriptor)

    def _replace(self, entries: list[AbortedTransaction]) -> None:
        with storage_errors("truncating", self.path):
            descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._disk.truncate(descriptor, len(entries) * _ENTRY.size)
                write_all(self._disk, descriptor, [_ENTRY.pack(_VERSION, *entry) for entry in entries], 0)
            finally:
                self._disk.close(descriptor)
