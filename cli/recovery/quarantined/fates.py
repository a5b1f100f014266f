"""Finds the fate of each batch of an entry: plain records, those of an aborted or an open
transaction, or a marker. Pure.

A transaction ends at its producer's next marker. One that has no marker in the entry was open when
the records were removed: its producer got no answer to a commit.
"""

from __future__ import annotations

import enum
from collections import defaultdict

from wire.batches.record_batch import BatchHeader


class Fate(enum.StrEnum):
    """The kind of a batch."""

    PLAIN = "plain"
    """Records outside of transactions, or of a committed one."""
    ABORTED = "aborted"
    OPEN = "open"
    MARKER = "marker"


class Fates:
    """The batches of one entry: `take` each in its order, then ask for the fate at a position."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[int]] = defaultdict(list)
        self._aborted: set[int] = set()
        self._markers: set[int] = set()
        self._open: frozenset[int] | None = None

    def take(self, position: int, header: BatchHeader, *, is_abort: bool) -> None:
        """The next batch, at a position in the entry; `is_abort` counts for markers."""
        if header.is_control:
            self._markers.add(position)
            ended = self._waiting.pop(header.producer_id, [])
            if is_abort:
                self._aborted.update(ended)
        elif header.is_transactional:
            self._waiting[header.producer_id].append(position)
        self._open = None

    def of(self, position: int) -> Fate:
        """The kind of the batch at the position, after all batches were taken."""
        if self._open is None:
            self._open = frozenset(at for waiting in self._waiting.values() for at in waiting)
        if position in self._markers:
            return Fate.MARKER
        if position in self._aborted:
            return Fate.ABORTED
        return Fate.OPEN if position in self._open else Fate.PLAIN
