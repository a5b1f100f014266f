"""Stores the ids of this process's ZooKeeper sessions in its locked data directories, for its
successor.

A killed process leaves its sessions behind. Until they expire, ZooKeeper shows the process as
alive, and its successor has to wait for seconds. A process that has locked the same data knows that
those sessions have no owner: it attaches to them and ends them. It ends the session itself, not its
nodes: if the killed process is alive after all, it loses everything that it held there, and
ZooKeeper reports this to it.

The file is only a hint: if it is missing, damaged or outdated, the successor waits until the
sessions expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from runtime.logs import get_logger
from runtime.zookeeper.client import end_session
from runtime.zookeeper.sessions import NoteSession, SessionKey

log = get_logger(__name__)

FILE_NAME: Final = ".zookeeper-sessions"
ONLY_FOR_US: Final = 0o600
"""Any reader of a session's password can end the session."""


class OwnSessions:
    """The sessions that the process's clients of one ZooKeeper report (`noting`), written into
    every directory that it has locked.
    """

    def __init__(self, connect: str, *, end: Callable[[str, SessionKey], Awaitable[None]] = end_session) -> None:
        self._connect = connect
        self._end = end
        self._keys: dict[str, SessionKey] = {}
        self._directories: tuple[str, ...] = ()

    def noting(self, name: str) -> NoteSession:
        """The callback for the client of this name."""
        return partial(self._note, name)

    def _note(self, name: str, key: SessionKey) -> None:
        if self._keys.get(name) != key:
            self._keys[name] = key
            self._write()

    async def succeed(self, directories: Sequence[str]) -> None:
        """End the sessions that are noted in these directories, which this process has locked, and
        note its own there from now on.
        """
        left = {key for directory in directories for key in _read(f"{directory}/{FILE_NAME}")} - {*self._keys.values()}
        if left:
            log.info("ended the ZooKeeper sessions of a process that is gone", count=len(left))
        await asyncio.gather(*(self._end(self._connect, key) for key in left))
        self._directories = tuple(directories)
        self._write()

    def forget(self) -> None:
        """Remove the own notes before the sessions are closed in order. The note of a successor is
        not removed.
        """
        for directory in self._directories:
            path = f"{directory}/{FILE_NAME}"
            if {*_read(path)} <= {*self._keys.values()}:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        self._directories = ()

    def _write(self) -> None:
        sessions = [{"id": key.session_id, "password": key.password.hex()} for key in self._keys.values()]
        content = json.dumps({"version": 0, "sessions": sessions}).encode()
        for directory in self._directories:
            path = f"{directory}/{FILE_NAME}"
            try:
                descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, ONLY_FOR_US)
                with open(descriptor, "wb") as file:
                    file.write(content)
                os.replace(f"{path}.tmp", path)
            except OSError as error:
                log.warning("ZooKeeper sessions cannot be recorded", path=path, reason=error.strerror)


def _read(path: str) -> list[SessionKey]:
    """The sessions in a note; none if the note is missing or malformed."""
    try:
        with open(path, "rb") as file:
            sessions = json.loads(file.read())["sessions"]
        return [SessionKey(int(entry["id"]), bytes.fromhex(entry["password"])) for entry in sessions]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        log.warning("a record of ZooKeeper sessions is not used", path=path, reason=repr(error))
        return []
