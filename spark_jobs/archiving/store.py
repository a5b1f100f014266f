"""The directory of an archive on a file system: manifests, files that get their name only when they
are complete, checksums while writing.

    manifests/00000001.json                                        one document a run
    claims/ID.json                                                 one document an archiver that
                                                                   runs
    batches/TOPIC_ID/PARTITION-FIRST-END.batches                   raw batches
    records/topic=NAME/day=DAY/TOPIC_ID-PARTITION-FIRST-END.parquet  records

The addresses are those of Arrow's file systems: `file:///dir`, `hdfs://host:port/dir`,
`s3://bucket/dir` (also as `s3a:`). Driver and workers must reach the same directory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from pyarrow import fs
from pyarrow.lib import ArrowException

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import BATCHES, RECORDS, ArchivedFile, Manifest, manifest_of, without_expired

MANIFESTS: Final = "manifests"
UNFINISHED: Final = ".unfinished"
READ_BYTES: Final = 4 * 1024 * 1024


class HashedFile:
    """A file that is written from front to end; `finish` gives it its name."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        # A separate directory, so that readers never list incomplete files.
        self._unfinished = f"{store.root}/{UNFINISHED}/{uuid4().hex}"
        store.files.create_dir(f"{store.root}/{UNFINISHED}", recursive=True)
        self._stream = store.files.open_output_stream(self._unfinished)
        self._hash = hashlib.sha256()
        self._bytes = 0

    @property
    def closed(self) -> bool:
        """True if the stream is closed, as for Python's files."""
        return bool(self._stream.closed)

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
        """Write buffered bytes to the file system."""
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: Arrow's writers close their file, but here `finish` and `discard` do that."""

    def discard(self) -> None:
        """Remove what was written."""
        self._stream.close()
        self._store.files.delete_file(self._unfinished)

    def finish(self, path: str) -> ArchivedFile:
        """Close the file and move it to `path` in the archive, where it replaces an older one."""
        self._stream.close()
        self._store.place(self._unfinished, path)
        return ArchivedFile(path=path, bytes=self._bytes, sha256=self._hash.hexdigest())


class ArchiveStore:
    """One archive. OperationalFailure from `at` when the address means no directory."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self.files = files
        self.root = root

    @classmethod
    def at(cls, address: str) -> ArchiveStore:
        """The archive at an address."""
        try:
            files, root = fs.FileSystem.from_uri(address.replace("s3a://", "s3://", 1))
        except (ArrowException, OSError, ValueError) as error:
            raise OperationalFailure(
                f"{address!r} is no directory of an archive ({error}); accepted: file:///dir, hdfs://host:port/dir, "
                "s3a://bucket/dir"
            ) from error
        return cls(files, root.rstrip("/"))

    def manifests(self) -> list[Manifest]:
        """All manifests by run, without what retention has let go. Raises OperationalFailure when
        one cannot be read.
        """
        found = []
        for info in self._listed(MANIFESTS):
            if not info.path.endswith(".json"):
                continue
            try:
                with self.files.open_input_stream(info.path) as stream:
                    found.append(manifest_of(json.loads(stream.read())))
            except (OSError, ValueError) as error:
                raise OperationalFailure(f"manifest {info.path} cannot be read: {error}") from error
        return without_expired(sorted(found, key=lambda manifest: manifest.run))

    def write_manifest(self, manifest: Manifest) -> None:
        """Store the document under its name in one step. Raises OperationalFailure when another
        archiver has stored one of this number.
        """
        path = f"{MANIFESTS}/{manifest.run:08d}.json"
        if self.size_of(path) is not None:
            raise OperationalFailure(f"{path} already exists: another archiver writes to this archive")
        file = HashedFile(self)
        file.write(json.dumps(manifest.as_document(), indent=1).encode())
        file.finish(path)

    def new_file(self) -> HashedFile:
        """A file to write; it has no name in the archive yet."""
        return HashedFile(self)

    def place(self, unfinished: str, path: str) -> None:
        """Move a whole file to its name."""
        target = f"{self.root}/{path}"
        self.files.create_dir(target.rpartition("/")[0], recursive=True)
        self.files.move(unfinished, target)

    def unnamed(self, named: set[str]) -> list[str]:
        """Files that no manifest names: a run that was killed has left them."""
        found = [path for folder in (UNFINISHED, BATCHES, RECORDS) for path in self.paths(folder)]
        return [path for path in found if path not in named]

    def paths(self, folder: str) -> list[str]:
        """The files of a folder, relative to the archive."""
        return [info.path.removeprefix(f"{self.root}/") for info in self._listed(folder)]

    def remove(self, path: str) -> None:
        """Delete one file."""
        self.files.delete_file(f"{self.root}/{path}")

    def size_of(self, path: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        info = self.files.get_file_info(f"{self.root}/{path}")
        return info.size if info.type == fs.FileType.File else None

    def file_problem(self, file: ArchivedFile) -> str:
        """The difference between the file and its manifest; empty when there is none. Raises
        OSError.
        """
        size = self.size_of(file.path)
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
        with self.files.open_input_file(f"{self.root}/{path}") as file:
            yield file

    def chunks(self, path: str) -> Iterator[bytes]:
        """The file's bytes in pieces of at most READ_BYTES. OSError."""
        with self.opened(path) as file:
            while data := file.read(READ_BYTES):
                yield data

    def _listed(self, folder: str) -> list[Any]:
        selector = fs.FileSelector(f"{self.root}/{folder}", recursive=True, allow_not_found=True)
        return [info for info in self.files.get_file_info(selector) if info.type == fs.FileType.File]
