"""Passwords of HTTP clients against the hashes of a file.

A bcrypt check takes a tenth of a second of one core by design. It runs in separate threads, and the
number of waiting checks is bounded: a flood of wrong passwords is refused and does not block the
event loop. Right passwords are remembered under a key of this process, so that a client that sends
its password with each request is checked only once.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import bcrypt

from bridge.access.watched_file import WatchedFile
from bridge.core.password_file import PASSWORD_BYTES_MAX, read_passwords
from bridge.core.refusals import too_many

USERS_KEY: Final = "antipode.authentication.users.location"
THREADS: Final = 2
WAITING_MAX: Final = 64
REMEMBERED_MAX: Final = 4096


class Passwords:
    """The users of one file."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError when the file cannot be used."""
        self._file = WatchedFile(USERS_KEY, path, lambda file: read_passwords(file.read_text(encoding="utf-8")))
        self._executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="bridge-passwords")
        self._waiting = 0
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()

    def stop(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def is_right(self, name: str, password: bytes) -> bool:
        """Whether the user has this password. Raises Refused (429) when too many wait for a check.

        An unknown name takes as long as a known one.
        """
        if not 0 < len(password) <= PASSWORD_BYTES_MAX or b"\0" in password:
            return False
        if self.is_remembered(name, password):
            return True
        users = self._file.content()
        known = users.get(name)
        hashed = known if known is not None else max(users.values(), key=lambda one: one[4:6])
        if self._waiting >= WAITING_MAX:
            raise too_many("Too many logins are being checked; try again.")
        self._waiting += 1
        try:
            is_equal = await asyncio.get_running_loop().run_in_executor(
                self._executor, bcrypt.checkpw, password, hashed
            )
        finally:
            self._waiting -= 1
        if not is_equal or known is None:
            return False
        self._right[self._seen(name, hashed, password)] = None
        if len(self._right) > REMEMBERED_MAX:
            self._right.popitem(last=False)
        return True

    def is_remembered(self, name: str, password: bytes) -> bool:
        """True if this password of the user was found right before, and still is the user's."""
        hashed = self._file.content().get(name)
        seen = None if hashed is None else self._seen(name, hashed, password)
        if seen is None or seen not in self._right:
            return False
        self._right.move_to_end(seen)
        return True

    def _seen(self, name: str, hashed: bytes, password: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join((name.encode(), hashed, password)), "sha256")
