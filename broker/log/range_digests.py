"""The digests of one log's leaves, in memory and in the file `range-digests` beside the segments.

Digests are what a thread has worked out from batch headers (`digesting.py`); this module keeps
them, drops them where the log changes, and writes them to the file. A truncation drops the leaves
that it reaches; DeleteRecords and retention drop those below the log's start. A compacted log has
none: its sites compact separately, so their batches differ legitimately.

The file has a header and 20 bytes a leaf: the digest and its CRC-32C. A leaf with a wrong checksum,
and everything after it, is computed from the log again. After an unclean stop only leaves below the
recovery point count: a truncation shortens the file before that point passes it again.

Owner: broker/log/partition_log.py. Methods run on the event loop, except `read` and `write`.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.directories.folder import Folder
from broker.log.errors import storage_errors
from runtime.disk import Disk, read_file, write_all, write_over
from wire.batches.leaf_digests import DIGEST_BYTES, LEAF_OFFSETS, LeafRun, PartRun, first_whole_leaf, sealed_leaf

RANGE_DIGESTS: Final = "range-digests"

_MAGIC: Final = b"antpdig\n"
_HEADER: Final = struct.Struct(">8sqqI")
_LEAF: Final = struct.Struct(f">{DIGEST_BYTES}sI")


class StoredLeaves(NamedTuple):
    """The content of the file: leaves from `first` on, as joined digests; `is_whole` when no part
    was damaged.
    """

    first: int
    digests: bytes
    is_whole: bool


class _Save(NamedTuple):
    """The data to write, behind the file's leaves, or (`is_new`) in their place."""

    first: int
    file_first: int
    digests: bytes
    is_new: bool
    generation: int


class RangeDigests:
    """The leaves of one log. `trusted_end` is the offset below which the opened log is the one that
    the file describes.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        folder: Folder,
        *,
        trusted_end: int,
        is_new: bool,
        is_clean: bool,
        note_names: Callable[[str], None],
    ) -> None:
        self.path = f"{directory}/{RANGE_DIGESTS}"
        self.turn = asyncio.Lock()
        """Held while digests are computed."""
        self.failure = ""
        """The reason why no more leaves follow; empty while leaves follow."""
        self.generation = 0
        """Grows when a digest that is being computed may be wrong."""
        self.is_loaded = is_new
        self._disk = disk
        self._folder = folder
        self._described_end = trusted_end
        """The end of the part of the log that the file covers."""
        self._note_names = note_names
        self._first = 0
        self._leaves = bytearray()
        self._open = LeafRun(0)
        self._part: PartRun | None = None
        self._file_range: tuple[int, int] | None = None
        # after a crash the log may end below what the file describes
        if not (is_new or is_clean):
            self._give_up_in_file(trusted_end)

    # -- facts -------------------------------------------------------------------------------------

    @property
    def first_leaf(self) -> int:
        """The first leaf whose digest is known."""
        return self._first

    @property
    def end_leaf(self) -> int:
        """The leaf behind the last one whose digest is known."""
        return self._first + len(self._leaves) // DIGEST_BYTES

    def leaves(self) -> bytes:
        """The joined digests from `first_leaf` on."""
        return bytes(self._leaves)

    def open_run(self) -> LeafRun:
        """A run that continues at the end of the former run."""
        return self._open.resumed()

    def part(self, leaf: int, end_offset: int) -> PartRun:
        """A run over the first part of a leaf: the kept one if it ends at this offset or before."""
        kept = self._part
        return kept.resumed() if kept and kept.leaf == leaf and kept.end_offset <= end_offset else PartRun(leaf)

    # -- changes -----------------------------------------------------------------------------------

    def keep_part(self, run: PartRun, generation: int) -> None:
        """Keep the part of a leaf for the next request, if the log has not changed since."""
        if generation == self.generation:
            self._part = run.resumed()

    def begin_at(self, log_start_offset: int) -> None:
        """Drop the leaves whose records the log has partly removed."""
        first = first_whole_leaf(log_start_offset)
        if first <= self._first:
            return
        del self._leaves[: (first - self._first) * DIGEST_BYTES]
        self._first = first
        if self._open.index < first:
            self._open = LeafRun(first)

    def take(self, run: LeafRun, generation: int) -> bool:
        """Keep what a run that began with `open_run` has found; False when the log has changed
        since.
        """
        if generation != self.generation or run.index - len(run.sealed) // DIGEST_BYTES != self.end_leaf:
            return False
        self._leaves += run.sealed
        self._open = run.resumed()
        return True

    def adopt(self, stored: StoredLeaves | None, generation: int, *, log_start_offset: int) -> None:
        """Keep what the file has; `take` follows from there."""
        if generation != self.generation:
            return
        self.is_loaded = True
        self.begin_at(log_start_offset)
        if stored is None:
            return
        stored_end = stored.first + len(stored.digests) // DIGEST_BYTES
        end = min(stored_end, sealed_leaf(self._described_end))
        if stored.is_whole:
            self._file_range = (stored.first, stored_end)
        if stored.first <= self._first < end:
            self._leaves[:] = stored.digests[(self._first - stored.first) * DIGEST_BYTES :][
                : (end - self._first) * DIGEST_BYTES
            ]
            self._open = LeafRun(end)

    def drop_from(self, offset: int) -> None:
        """The log has changed from `offset` on; leaves below stay. The file is shortened at once,
        and the next flush makes that durable.
        """
        self.generation += 1
        self.failure = ""
        self._part = None
        kept = sealed_leaf(offset)
        del self._leaves[max(kept - self._first, 0) * DIGEST_BYTES :]
        if self._open.next_offset > offset or self._open.index > kept:
            self._open = LeafRun(max(self.end_leaf, self._first))
        self._file_range = None
        if offset < self._described_end:
            self._described_end = offset
            self._give_up_in_file(offset)

    def _give_up_in_file(self, offset: int) -> None:
        with self._folder.held() as is_here:
            if is_here and self._shorten(sealed_leaf(offset)):
                self._note_names(self.path)

    def _shorten(self, end_leaf: int) -> bool:
        """Truncate the file to the leaves below `end_leaf`; False when there is none."""
        with storage_errors("truncating", self.path):
            try:
                descriptor = self._disk.open(self.path, os.O_RDWR)
            except FileNotFoundError:
                return False
            try:
                first = _first_of(self._disk.pread(descriptor, _HEADER.size, 0))
                length = 0 if first is None else _HEADER.size + max(end_leaf - first, 0) * _LEAF.size
                self._disk.truncate(descriptor, min(length, self._disk.size(descriptor)))
            finally:
                self._disk.close(descriptor)
        return True

    # -- the file ----------------------------------------------------------------------------------

    def read(self) -> StoredLeaves | None:
        """The content of the file; None if there is no usable file. For threads."""
        with self._folder.held() as is_here, storage_errors("reading", self.path):
            if not is_here:
                return None
            try:
                content = read_file(self._disk, self.path)
            except FileNotFoundError:
                return None
        return decode(content)

    def unsaved(self) -> _Save | None:
        """The data that `write` has to add to the file; None when the file is complete."""
        first, end = self.first_leaf, self.end_leaf
        if first == end or not self.is_loaded:
            return None
        file_first, file_end = self._file_range or (end, 0)
        # rewritten when more than half of it describes offsets below the log's start
        is_new = file_end < first or file_first > first or 2 * (first - file_first) > file_end - file_first
        if not is_new and end <= file_end:
            return None
        begin = first if is_new else file_end
        digests = bytes(self._leaves[(begin - first) * DIGEST_BYTES :])
        # before the write: a concurrent truncation must see that the file needs shortening
        self._described_end = max(self._described_end, end * LEAF_OFFSETS)
        return _Save(begin, first if is_new else file_first, digests, is_new, self.generation)

    def write(self, save: _Save) -> None:
        """Bring them to the file. A crash may leave a part of them. For threads."""
        body = encode_leaves(save.first, save.digests)
        with self._folder.held() as is_here, storage_errors("writing", self.path):
            # under the folder's lock: a truncation that comes now shortens the file after this
            # write
            if not is_here or save.generation != self.generation:
                return
            if save.is_new:
                write_over(self._disk, self.path, encode_header(save.first) + body)
                return
            descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CREAT)
            try:
                position = _HEADER.size + (save.first - save.file_first) * _LEAF.size
                write_all(self._disk, descriptor, [body], position)
            finally:
                self._disk.close(descriptor)

    def note_saved(self, save: _Save) -> None:
        """`write` has ended."""
        if save.generation == self.generation:
            self._file_range = (save.file_first, save.first + len(save.digests) // DIGEST_BYTES)


def encode_header(first_leaf: int) -> bytes:
    """The file's header."""
    fields = _HEADER.pack(_MAGIC, LEAF_OFFSETS, first_leaf, 0)[:-4]
    return fields + crc32c(fields).to_bytes(4, "big")


def encode_leaves(first_leaf: int, digests: bytes) -> bytes:
    """The file's entries of these leaves."""
    entries = bytearray()
    for number in range(len(digests) // DIGEST_BYTES):
        digest = digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        entries += _LEAF.pack(digest, _checksum(first_leaf + number, digest))
    return bytes(entries)


def decode(content: bytes) -> StoredLeaves | None:
    """The leaves up to the first damage; None if the header is not one of ours."""
    first = _first_of(content)
    if first is None:
        return None
    digests = bytearray()
    position = _HEADER.size
    while position + _LEAF.size <= len(content):
        digest, checksum = _LEAF.unpack_from(content, position)
        if checksum != _checksum(first + len(digests) // DIGEST_BYTES, digest):
            break
        digests += digest
        position += _LEAF.size
    return StoredLeaves(first, bytes(digests), position == len(content))


def _first_of(content: bytes) -> int | None:
    if len(content) < _HEADER.size:
        return None
    magic, leaf_offsets, first, checksum = _HEADER.unpack_from(content)
    is_ours = magic == _MAGIC and leaf_offsets == LEAF_OFFSETS and checksum == crc32c(content[: _HEADER.size - 4])
    return int(first) if is_ours else None


def _checksum(leaf: int, digest: bytes) -> int:
    return int(crc32c(digest, crc32c(leaf.to_bytes(8, "big"))))
