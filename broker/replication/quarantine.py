"""Keeps records in quarantine before a log removes them: one store with the records that logs
truncate inside a site (`truncated_records.py`).

An entry is two files beside the partitions' folders:
`0.cut.@<topic id>-<partition>-<link epoch>-<first>-<end>-<last leader epoch>.log`
has the unchanged batches, and the file of the same name with `.json` describes them and the reason
for their removal. The batches are on disk before the second file is, and an entry exists only with
both: the copy of an interrupted attempt does not count and is made again. The topic's name is in
the second file, because it may be too long for a file name. No broker looks for logs there, and
Kafka's dump tool reads the batches.

The limit of each partition is that of truncated records: records beyond it are refused, and never
dropped. Entries stay when their topic is deleted; they expire only where a retention is set
(`quarantine_upkeep.py`). Called on the event loop by
`broker/handlers/links/quarantine_records.py`, and in a thread by
`broker/handlers/links/quarantine.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict, replace

from broker.log.dropped.truncated_names import (
    LEADING_CHARACTERS,
    TRUNCATED_PREFIX,
    short_topic,
    truncated_name,
)
from broker.log.errors import CorruptLog
from broker.log.partition_log import PartitionLog
from broker.log.segments.batch_scan import BatchScan
from broker.log.threads import in_thread
from broker.replication.core.quarantine_retention import KeptEntry, QuarantineUse
from runtime.disk import DirectoryEntry, Disk, read_file, write_all, write_file
from runtime.logs import get_logger
from wire.protocol.json_documents import parse_json

log = get_logger(__name__)

BYTES_MAX_KEY: Final = "antipode.truncated.records.max.bytes"
PIECE_BYTES: Final = 1 << 20
BATCHES, ACCOUNT = ".log", ".json"


class QuarantineFull(Exception):
    """The records do not fit below the bound; the message says what would help."""


class Origin(Struct, frozen=True, kw_only=True):
    """The reason why records are kept, and where they come from."""

    kind: str
    reason: str
    origin_site: str
    link: str
    link_epoch: int


class Entry(Struct, frozen=True, kw_only=True):
    """The kept records of one partition: whole batches, from `first_offset` up to `end_offset`.

    `kind` is "reset" for records that `links reset` removed, "reinstated" for records that only a
    returning site had, "undone" for records that a failover to a time removed, "damaged" for the
    bytes of a batch that was replaced, and "truncated" for records that a log lost inside its site
    (the file has no more information about these).
    """

    name: str
    kind: str
    topic: str
    partition: int
    first_offset: int
    end_offset: int
    size_bytes: int
    topic_id: str = ""
    at_ms: int = -1
    reason: str = ""
    origin_site: str = ""
    link: str = ""
    link_epoch: int = -1


class Quarantine:
    """The entries of one broker."""

    def __init__(self, disk: Disk, *, bytes_max: int) -> None:
        """Keeps at most `bytes_max` bytes for a partition, truncated records included."""
        self._disk = disk
        self._bytes_max = bytes_max
        self._turn = asyncio.Lock()
        self.use = QuarantineUse()
        """As of the last look of `quarantine_upkeep.py`."""

    async def keep(
        self,
        log: PartitionLog,
        first_offset: int,
        origin: Origin,
        *,
        topic_id: bytes,
        now_ms: int,
        end_offset: int | None = None,
    ) -> Entry:
        """Copy what the log holds from `first_offset` on, up to `end_offset` or its end, and return
        when it is on disk. QuarantineFull, OSError, StorageError.

        The same records are stored once: a repeated request after an interruption returns the
        existing entry.
        """
        first_offset = max(first_offset, log.log_start_offset)
        end_offset = log.log_end_offset if end_offset is None else end_offset
        directory = os.path.dirname(log.directory)
        # The last leader epoch is part of the name: the same offsets with another history are
        # another entry.
        last_epoch = log.epoch_at(end_offset - 1)
        name = f"{_place(topic_id, log.partition)}{origin.link_epoch}-{first_offset}-{end_offset}-{last_epoch}"
        # Only one copy at a time, because the bound counts the existing bytes.
        async with self._turn:
            files = await in_thread(partial(self._files_of, directory, log, topic_id))
            if f"{name}{ACCOUNT}" in files and (known := self._entry(directory, name, files)) is not None:
                return known
            path = f"{directory}/{name}"
            try:
                # what is there under this name is written again
                others = {file: found for file, found in files.items() if not file.startswith(f"{name}.")}
                room_bytes = self._bytes_max - _used_bytes(others)
                size_bytes = await self._copy(log, first_offset, end_offset, f"{path}{BATCHES}", room_bytes)
                entry = Entry(
                    name=name,
                    topic=log.topic,
                    partition=log.partition,
                    first_offset=first_offset,
                    end_offset=end_offset,
                    size_bytes=size_bytes,
                    topic_id=str(UUID(bytes=topic_id)),
                    at_ms=now_ms,
                    **asdict(origin),
                )
                # The account is written last: an entry without it does not count, and is copied
                # again.
                account = json.dumps(asdict(entry)).encode()
                await in_thread(partial(write_file, self._disk, f"{path}{ACCOUNT}", account, is_durable=True))
            except BaseException:
                # A failed copy leaves no bytes that nothing counts. No thread writes any more: a
                # cancelled caller has waited for its end.
                for suffix in (ACCOUNT, BATCHES):
                    with contextlib.suppress(OSError):
                        self._disk.unlink(f"{path}{suffix}")
                raise
            return entry

    async def _copy(self, log: PartitionLog, offset: int, end_offset: int, path: str, room_bytes: int) -> int:
        descriptor = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        position = 0
        try:
            while offset < end_offset:
                with log.read(offset, max_bytes=PIECE_BYTES, end_offset=end_offset) as piece:
                    content, next_offset = piece.read_bytes(), piece.next_offset
                if not content or next_offset <= offset:
                    raise QuarantineFull(
                        f"the log of {log.topic}-{log.partition} cannot be read at offset {offset}: none of its records were kept"
                    )
                if position + len(content) > room_bytes:
                    raise QuarantineFull(self._full(log, room_bytes, position + len(content)))
                position += write_all(self._disk, descriptor, [content], position)
                offset = next_offset
                # Yield after each piece, because the log may be large, and clients wait for this
                # loop.
                await asyncio.sleep(0)
            await in_thread(partial(self._disk.fdatasync, descriptor))
            # the file's name too: the account must never be durable alone
            await in_thread(partial(self._disk.fsync_directory, os.path.dirname(path)))
        finally:
            self._disk.close(descriptor)
        return position

    def _full(self, log: PartitionLog, room_bytes: int, needed_bytes: int) -> str:
        return (
            f"the quarantine of {log.topic}-{log.partition} has room for {max(0, room_bytes)} bytes and more than {needed_bytes - 1} are "
            f"to be kept: {BYTES_MAX_KEY} is {self._bytes_max}; accepted: a larger value, or export and delete what it holds "
            "(antipode quarantine export, antipode quarantine delete)"
        )

    def _files_of(self, directory: str, log: PartitionLog, topic_id: bytes) -> dict[str, DirectoryEntry]:
        """The files that keep records of this partition, by name: a look at every file would take
        long where thousands of partitions have entries.
        """
        prefix = (_place(topic_id, log.partition), truncated_name(log.topic, log.partition))
        return {file.name: file for file in self._disk.entries(directory, prefix)}

    def entries(self, directories: Iterable[str], *, topics: Iterable[str] = ()) -> list[Entry]:
        """All entries in these log directories, truncated records included, by name. Raises
        OSError.

        Of truncated records whose file could not have the topic's whole name, the topic is named if
        it is among `topics`.
        """
        whole_names = {short_topic(topic): topic for topic in topics if len(topic) > LEADING_CHARACTERS}
        found = (
            one for directory in directories for one in (*self._kept_in(directory), *self._truncated_in(directory))
        )
        named = (replace(one, topic=whole_names.get(one.topic, one.topic)) for one in found)
        return sorted(named, key=lambda one: one.name)

    def kept(self, directories: Iterable[str]) -> list[KeptEntry]:
        """The entries as retention sees them: no batch is read. Raises OSError."""
        return [_as_kept(entry) for directory in directories for entry in self._without_offsets(directory)]

    def expire(self, directories: Iterable[str], expired: Iterable[KeptEntry]) -> list[str]:
        """Delete these entries, unless they have changed since; the names of the deleted ones.
        Raises OSError.
        """
        wanted = set(expired)
        names = {entry.name for entry in wanted}
        deleted = []
        for directory in directories:
            for entry in self._without_offsets(directory, names):
                if _as_kept(entry) in wanted:
                    self._remove(f"{directory}/{entry.name}")
                    deleted.append(entry.name)
        return deleted

    def _without_offsets(self, directory: str, names: Container[str] | None = None) -> list[Entry]:
        """All entries, or those of the given names. The offsets of truncated records are not
        read.
        """
        return [*self._kept_in(directory, names), *self._truncated_in(directory, names, has_offsets=False)]

    def _kept_in(self, directory: str, wanted: Container[str] | None = None) -> list[Entry]:
        files = {file.name: file for file in self._disk.entries(directory, f"{TRUNCATED_PREFIX}@")}
        names = [name.removesuffix(ACCOUNT) for name in files if name.endswith(ACCOUNT)]
        return [
            entry
            for name in names
            if (wanted is None or name in wanted) and (entry := self._entry(directory, name, files)) is not None
        ]

    def _entry(self, directory: str, name: str, files: Mapping[str, DirectoryEntry]) -> Entry | None:
        """The entry of an account; None if the account is damaged, or `files` has not all of its
        batches.
        """
        path = f"{directory}/{name}{ACCOUNT}"
        try:
            entry = Entry(**parse_json(read_file(self._disk, path)))
        except FileNotFoundError:
            return None  # deleted since the listing
        except (ValueError, TypeError) as error:
            log.warning("account of quarantined records is damaged", path=path, reason=str(error))
            return None
        batches = files.get(f"{name}{BATCHES}")
        if batches is None or batches.size_bytes != entry.size_bytes:
            found = "none" if batches is None else batches.size_bytes
            log.warning("quarantined records are missing", path=path, bytes=entry.size_bytes, found_bytes=found)
            return None
        return entry

    def _truncated_in(
        self, directory: str, wanted: Container[str] | None = None, *, has_offsets: bool = True
    ) -> list[Entry]:
        found = []
        for one in self._disk.entries(directory, TRUNCATED_PREFIX):
            place, name = _truncated_place(one.name), one.name.removesuffix(BATCHES)
            if place is None or not (wanted is None or name in wanted):
                continue
            path = f"{directory}/{one.name}"
            first_offset, end_offset = self._offsets(path, one.size_bytes) if has_offsets else (-1, -1)
            found.append(
                Entry(
                    name=name,
                    kind="truncated",
                    topic=place[0],
                    partition=place[1],
                    first_offset=first_offset,
                    end_offset=end_offset,
                    size_bytes=one.size_bytes,
                    at_ms=one.modified_ms,
                    reason="the leader that the log follows has another history, or a crash damaged a batch before these",
                )
            )
        return found

    def _offsets(self, path: str, size_bytes: int) -> tuple[int, int]:
        """The lowest offset of a file's batches and the end of the highest: -1 and -1 for none."""
        lowest, end = -1, -1
        descriptor = self._disk.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(CorruptLog):
                for _, header in BatchScan(self._disk, descriptor, path, 0, size_bytes):
                    lowest = header.base_offset if lowest < 0 else min(lowest, header.base_offset)
                    end = max(end, header.next_offset)
        finally:
            self._disk.close(descriptor)
        return lowest, end

    def read(self, directories: Iterable[str], name: str, position: int) -> bytes:
        """A piece of an entry's batches from a byte position on; empty at the end. LookupError:
        there is no such entry. OSError.
        """
        descriptor = self._disk.open(f"{self._home_of(directories, name)}/{name}{BATCHES}", os.O_RDONLY)
        try:
            return self._disk.pread(descriptor, PIECE_BYTES, position)
        finally:
            self._disk.close(descriptor)

    def delete(self, directories: Iterable[str], name: str) -> None:
        """Give an entry up; its account goes first. LookupError: there is no such entry.
        OSError.
        """
        self._remove(f"{self._home_of(directories, name)}/{name}")

    def _remove(self, path: str) -> None:
        # the account first: batches without one are an interrupted copy and take no room
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(f"{path}{ACCOUNT}")
        self._disk.unlink(f"{path}{BATCHES}")

    def _home_of(self, directories: Iterable[str], name: str) -> str:
        for directory in directories:
            files = {file.name for file in self._disk.entries(directory, name)}
            is_whole = f"{name}{ACCOUNT}" in files or _truncated_place(f"{name}{BATCHES}") is not None
            if f"{name}{BATCHES}" in files and is_whole:
                return directory
        raise LookupError(f"the quarantine has no entry named {name!r}")


def _used_bytes(files: Mapping[str, DirectoryEntry]) -> int:
    """Bytes that are kept in these files of one partition: those of an interrupted copy do not
    count, because the next attempt overwrites them.
    """
    return sum(
        file.size_bytes
        for name, file in files.items()
        if _truncated_place(name) is not None
        or (name.endswith(BATCHES) and f"{name.removesuffix(BATCHES)}{ACCOUNT}" in files)
    )


def _truncated_place(file_name: str) -> tuple[str, int] | None:
    """Topic and partition of a file of truncated records; None for another file."""
    name = file_name.removesuffix(BATCHES)
    topic, _, partition = name.removeprefix(TRUNCATED_PREFIX).rpartition("-")
    is_one = file_name.startswith(TRUNCATED_PREFIX) and name != file_name and "@" not in name and partition.isdecimal()
    return (topic, int(partition)) if is_one else None


def _as_kept(entry: Entry) -> KeptEntry:
    return KeptEntry(entry.name, f"{entry.topic}-{entry.partition}", entry.size_bytes, entry.at_ms)


def _place(topic_id: bytes, partition: int) -> str:
    """The prefix of the names of a partition's entries."""
    return f"{TRUNCATED_PREFIX}@{topic_id.hex()}-{partition}-"
