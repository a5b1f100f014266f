"""The directory of an archive on a file system: manifests, files that get their name only when they
are complete, checksums while writing.

    manifests/00000001.json                                        one document a wave of a run
    claims/ID.json                                                 one document an archiver that
                                                                   runs
    batches/TOPIC_ID/PARTITION-FIRST-END.batches                   raw batches
    records/topic=NAME/day=DAY/TOPIC_ID-PARTITION-FIRST-END.parquet  records

The addresses are those of `directories.py`. Driver and workers must reach the same directory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import uuid4

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import (
    BATCHES,
    RECORDS,
    UNFINISHED_SUFFIX,
    ArchivedFile,
    Manifest,
    files_of,
    manifest_of,
    next_manifest,
    without_expired,
)
from spark_jobs.archiving.directories import Directory, directory_at

MANIFESTS: Final = "manifests"
UNFINISHED: Final = ".unfinished"
READ_BYTES: Final = 4 * 1024 * 1024


class HashedFile:
    """A file that is written from front to end; `finish` gives it its name."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        # A separate directory, so that readers never list incomplete files.
        self._unfinished = f"{UNFINISHED}/{uuid4().hex}"
        self._stream = store.directory.open_writer(self._unfinished)
        self._hash = hashlib.sha256()
        self._bytes = 0
        self.closed = False
        """As for Python's files."""

    def write(self, data: Any) -> int:
        """Append the bytes; returns their number."""
        with memoryview(data) as view:
            self._stream.write(view)
            self._hash.update(view)
            self._bytes += view.nbytes
            return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._bytes

    def flush(self) -> None:
        """Do nothing: Arrow's writers flush what `finish` completes."""

    def close(self) -> None:
        """Do nothing: Arrow's writers close their file, but here `finish` and `discard` do that."""

    def discard(self) -> None:
        """Remove what was written."""
        self.end()
        self._store.directory.remove(self._unfinished)

    def finish(self, path: str) -> ArchivedFile:
        """Close the file and move it to `path` in the archive, where it replaces an older one."""
        self.end()
        self._store.place(self._unfinished, path)
        return ArchivedFile(path=path, bytes=self._bytes, sha256=self._hash.hexdigest())

    def end(self) -> None:
        """Close the file, whose bytes are complete; it has no name yet."""
        if not self.closed:
            self.closed = True
            self._stream.close()


class ArchiveStore:
    """One archive. Methods raise OperationalFailure when the file system fails, and OSError where
    they say so.
    """

    def __init__(self, directory: Directory, address: str) -> None:
        self.directory = directory
        self.address = address

    @classmethod
    def at(cls, address: str) -> ArchiveStore:
        """The archive at an address. OperationalFailure when the address means no directory."""
        return cls(directory_at(address), address)

    def manifests(self) -> list[Manifest]:
        """All manifests by number, without what retention has let go. Raises OperationalFailure
        when one cannot be read, or no file can be found at the address.
        """
        found = []
        for path in self.paths(MANIFESTS):
            if not path.endswith(".json"):
                continue
            try:
                found.append(manifest_of(json.loads(self.content(path))))
            except (OSError, ValueError) as error:
                raise OperationalFailure(f"manifest {path} cannot be read: {error}") from error
        if not found:
            with self._failures():
                self.directory.check()
        return without_expired(sorted(found, key=lambda manifest: manifest.number))

    def write_manifest(self, manifest: Manifest) -> None:
        """Store the document under its name in one step. Raises OperationalFailure when another
        archiver has stored one of this number: of several, one succeeds.
        """
        path = f"{MANIFESTS}/{manifest.number:08d}.json"
        data = json.dumps(manifest.as_document(), indent=1).encode()
        with self._failures():
            try:
                self.directory.create(path, data)
            except FileExistsError as error:
                # a client repeats a request of which it lost the answer, and meets its own file
                if self.content(path) != data:
                    raise OperationalFailure(
                        f"{path} already exists: another archiver writes to this archive; run it again"
                    ) from error

    def put(self, path: str, data: bytes) -> None:
        """Write a small file, or replace it, in one step."""
        with self._failures():
            self.directory.put(path, data)

    def new_file(self) -> HashedFile:
        """A file to write; it has no name in the archive yet. OSError."""
        return HashedFile(self)

    def place(self, unfinished: str, path: str) -> None:
        """Give a whole file its name. OSError."""
        self.directory.replace(unfinished, path)

    def unnamed(self, named: set[str]) -> list[str]:
        """Files that no manifest names: a run that was killed has left them."""
        found = [path for folder in (UNFINISHED, BATCHES, RECORDS) for path in self.paths(folder)]
        unfinished = [path for path in self.paths(MANIFESTS) if path.endswith(UNFINISHED_SUFFIX)]
        return [path for path in (*found, *unfinished) if path not in named]

    def remove_unnamed(self, manifests: list[Manifest], format_name: str) -> list[Manifest]:
        """Remove the files that no manifest names; returns the manifests of the archive. The
        archiver that left them may only be paused. An empty manifest takes the number of its
        manifest first, so that it cannot name files that are removed here.
        """
        unnamed = self.unnamed(files_of(manifests))
        if any(not path.startswith(f"{UNFINISHED}/") for path in unnamed):
            fence = next_manifest(manifests, format_name)
            self.write_manifest(fence)
            manifests = [*manifests, fence]
        for path in unnamed:
            self.remove(path)
        return manifests

    def paths(self, folder: str) -> list[str]:
        """The files of a folder, relative to the archive."""
        with self._failures():
            return sorted(self.directory.sizes(folder))

    def remove(self, path: str) -> None:
        """Delete one file, if it is there."""
        with self._failures(), suppress(FileNotFoundError):
            self.directory.remove(path)

    def file_problem(self, file: ArchivedFile) -> str:
        """The difference between the file and its manifest; empty when there is none. Raises
        OSError.
        """
        size = self.directory.size(file.path)
        if size is None:
            return "it is missing"
        if size != file.bytes:
            return f"it has {size} bytes, expected {file.bytes}"
        found = hashlib.sha256()
        for chunk in self.chunks(file.path):
            found.update(chunk)
        return "" if found.hexdigest() == file.sha256 else "its bytes do not match the checksum in the manifest"

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """The file as a readable, seekable file object. OSError."""
        with self.directory.open_reader(path) as file:
            yield file

    def chunks(self, path: str) -> Iterator[bytes]:
        """The file's bytes in pieces of at most READ_BYTES. OSError."""
        with self.opened(path) as file:
            while data := file.read(READ_BYTES):
                yield data

    def content(self, path: str) -> bytes:
        """All bytes of a small file. OSError."""
        return b"".join(self.chunks(path))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OperationalFailure(f"the archive {self.address} cannot be used: {error}") from error
