"""The log lines of refused logins at one listener, a few at a time: in a storm of wrong logins the
event loop has no line to write for each of them while it serves others.

Refusals of a moment that differ by the client's port alone are one line, with their number and the
first of these clients.
"""

from __future__ import annotations

import asyncio
from typing import Final

from runtime.logs import LogLines

WRITTEN_AFTER_S: Final = 1.0


class RefusalLog:
    """Collects refusals, and writes them `WRITTEN_AFTER_S` after the first one."""

    def __init__(self) -> None:
        self._lines = LogLines(__name__, "login refused")
        # the first client and the number of refusals, by address, listener and reason
        self._refusals: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._writing: asyncio.TimerHandle | None = None

    def add(self, *, client: str, listener: str, reason: str) -> None:
        """A login of this client (its address and port) was refused."""
        key = client.rpartition(":")[0], listener, reason
        first, count = self._refusals.get(key, (client, 0))
        self._refusals[key] = first, count + 1
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(WRITTEN_AFTER_S, self.write)

    def write(self) -> None:
        """Write the collected refusals now."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        refusals, self._refusals = self._refusals, {}
        for (_, listener, reason), (client, count) in refusals.items():
            self._lines.add(client=client, listener=listener, reason=reason, refusals=count)
        self._lines.write()
