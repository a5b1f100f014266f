"""Stores which leader epoch wrote which offsets: the table for truncation by epoch (KIP-101,
KIP-279, KIP-320). Pure.

Entries are (epoch, first offset), both growing. The log feeds it from the batches it appends and
keeps it in the file `leader-epoch-checkpoint`; replicas and clients ask it where an epoch ended to
find the point at which logs diverge.

Callers: broker/log/partition_log.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from wire.protocol.ids import NO_EPOCH, NO_OFFSET


class EpochStart(NamedTuple):
    """The first offset written in a leader epoch."""

    epoch: int
    start_offset: int


EpochColumns: TypeAlias = tuple[list[int], list[int]]
"""Leader epochs, and the first offset written in each."""


class EpochEnd(NamedTuple):
    """The offset after the last one written in `epoch`; both -1 if the table has no entry."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The table of one log. `version` grows with each change, so that the owner knows when to save
    it.
    """

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.version = 0
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        # entries that were read from the file need not be saved
        self.version = 0

    @property
    def latest(self) -> int:
        """The newest epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[EpochStart]:
        """All entries, oldest first."""
        return [EpochStart(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def begun_before(self, end_offset: int) -> EpochColumns:
        """The epochs that begin below the offset, oldest first."""
        count = bisect_left(self._starts, end_offset)
        return self._epochs[:count], self._starts[:count]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, unless it is known; entries that contradict
        it are dropped.
        """
        # the common case, once for each batch: no search
        if epoch < 0 or (self._epochs and epoch == self._epochs[-1]):
            return
        # a truncation that a crash undid may leave entries above: the batch itself is right
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        if self._epochs and keep < len(self._epochs) and self._epochs[keep] == epoch:
            keep += 1
            del self._epochs[keep:], self._starts[keep:]
        else:
            del self._epochs[keep:], self._starts[keep:]
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self.version += 1

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch at or below `epoch` and where it ended; the log's end for the newest
        epoch.
        """
        # Kafka's answer for a newer epoch: the client has a history that this log does not know
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_END
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        # the requested epoch is older than the table: it ended where the table begins
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(self._epochs[above - 1], self._starts[above])

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if it is older than the table."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_EPOCH

    def start_at_or_above(self, epoch: int) -> int | None:
        """First offset written in `epoch` or a later one; None if the table is empty."""
        index = bisect_left(self._epochs, epoch)
        return self._starts[index] if index < len(self._starts) else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after `end_offset`, the new end of the log."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.version += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before `start_offset`, the new start of the log; the epoch of
        that offset begins there now.
        """
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or self._starts[index] == start_offset == self._starts[0]:
            return
        del self._epochs[:index], self._starts[:index]
        self._starts[0] = start_offset
        self.version += 1

    def clear(self) -> None:
        """Remove everything: the log was emptied."""
        if self._epochs:
            del self._epochs[:], self._starts[:]
            self.version += 1
