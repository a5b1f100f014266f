"""A log's directory for threads: its name may belong to another log after this one is deleted and
created again.

Work in a thread that renames, removes or replaces files by name holds the folder (`held`), and does
nothing if its log was released. Renaming the directory of a deleted log holds it too, so nothing of
the old log reaches the directory of the new one.

Owner: broker/log/partition_log.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Folder:
    """One log's claim on its directory. `let_go` is called on the event loop and does not wait."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_let_go = False

    def let_go(self) -> None:
        """Release the log, which was deleted or whose disk failed: work that begins later does
        nothing.
        """
        self._is_let_go = True

    @property
    def is_let_go(self) -> bool:
        """True if the directory is offline, so that no file may be opened or created here."""
        return self._is_let_go

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep the directory's name while the body runs; yield whether it is still this log's."""
        with self._lock:
            yield not self._is_let_go
