"""The ownership of a log directory: its lock, the broker and cluster that have written to it, and
the newest registration of the broker that it has handled.

Caller: broker/log/directories/log_directory.py.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

from broker.log.directories import checkpoints
from broker.log.errors import DirectoryLocked, StorageError, storage_errors
from runtime.disk import Disk, write_file

LOCK_FILE: Final = ".lock"


_LOCKED_HERE: Final[set[str]] = set()
"""Directories locked by this process: its own locks do not stop it, and closing a second descriptor
would drop the first's.
"""


class ForeignDirectory(StorageError):
    """The directory belongs to another broker or another cluster."""


class DirectoryClaim:
    """This process's claim to one log directory."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._descriptor = -1
        self._locked_path = ""
        self.registration: int | None = None
        """The newest registration of the broker (the zxid of its creation) whose removals of
        replicas this directory has applied; None if the directory has no record of it.
        """

    def lock(self) -> None:
        """Lock the directory. DirectoryLocked."""
        path = f"{self._path}/{LOCK_FILE}"
        self._locked_path = os.path.realpath(self._path)
        if self._locked_path in _LOCKED_HERE:
            raise DirectoryLocked(self._path)
        with storage_errors("locking", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            # the same kind of lock as Java's: it excludes Apache Kafka as well
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryLocked(self._path) from error
        self._descriptor = descriptor
        _LOCKED_HERE.add(self._locked_path)

    def unlock(self) -> None:
        """Release the directory to other processes."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _LOCKED_HERE.discard(self._locked_path)

    def check_identity(self, node_id: int, cluster_id: str) -> None:
        """Write the owner of the directory, or raise ForeignDirectory."""
        path = f"{self._path}/{checkpoints.META_PROPERTIES}"
        found = checkpoints.read_meta_properties(self._disk, path)
        if not found:
            checkpoints.write_meta_properties(self._disk, path, broker_id=node_id, cluster_id=cluster_id)
            return
        if found.get("version") not in ("0", "1"):
            raise ForeignDirectory("opening", path, f"version={found.get('version')}, known are 0 and 1")
        for key, wanted in (("cluster.id", cluster_id), ("broker.id", str(node_id))):
            if key in found and found[key] != wanted:
                raise ForeignDirectory(
                    "opening", path, f"the directory belongs to {key}={found[key]}, this broker has {wanted}"
                )

    def read_registration(self) -> None:
        """Read which registration the directory has handled. A damaged file counts as none: then
        removed replicas are kept aside.
        """
        try:
            self.registration = checkpoints.read_number(self._disk, self._registration_path())
        except checkpoints.CorruptCheckpoint:
            self.registration = None

    def note_registration(self, zxid: int) -> None:
        """Record, durably, that the directory has handled this registration. A number never
        decreases: registrations in a ZooKeeper that was restored from a backup may have lower ones.
        """
        if self.registration is None or self.registration < zxid:
            checkpoints.write_number(self._disk, self._registration_path(), zxid)
            self.registration = zxid

    def _registration_path(self) -> str:
        return f"{self._path}/{checkpoints.HANDLED_REGISTRATION}"

    def take_clean_marker(self) -> bool:
        """Remove the mark of a clean stop; return whether there was one."""
        with storage_errors("opening", self._path):
            try:
                self._disk.unlink(f"{self._path}/{checkpoints.CLEAN_SHUTDOWN}")
            except FileNotFoundError:
                return False
            self._disk.fsync_directory(self._path)
        return True

    def leave_clean_marker(self, broker_epoch: int) -> None:
        """Write the mark of a clean stop, in Kafka's format."""
        path = f"{self._path}/{checkpoints.CLEAN_SHUTDOWN}"
        with storage_errors("writing", path):
            content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
            write_file(self._disk, path, content.encode(), is_durable=True)
