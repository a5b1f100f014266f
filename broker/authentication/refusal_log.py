"""The log lines of refused logins at one listener, a few at a time: in a storm of wrong logins the
event loop has no line to write for each of them while it serves others.
"""

from __future__ import annotations

import asyncio
from typing import Final

from runtime.logs import LogLines

WRITTEN_AFTER_S: Final = 0.1


class RefusalLog:
    """Collects lines, and writes them `WRITTEN_AFTER_S` after the first one."""

    def __init__(self) -> None:
        self._lines = LogLines(__name__, "login refused")
        self._writing: asyncio.TimerHandle | None = None

    def add(self, *, client: str, listener: str, reason: str) -> None:
        """A login of this client (its address) was refused."""
        self._lines.add(client=client, listener=listener, reason=reason)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(WRITTEN_AFTER_S, self.write)

    def write(self) -> None:
        """Write the collected lines now."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._lines.write()
