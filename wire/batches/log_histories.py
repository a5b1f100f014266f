"""Finds the offset up to which two logs of a partition have the same records, by the leader epochs
of the records (KIP-101, KIP-279). Pure.

Within one leader epoch one leader writes, so two logs that both hold records of an epoch agree on
everything up to the earlier end of that epoch. An epoch in which nothing was written is no part of
a history. The disaster-recovery tools have the whole history of both logs (`common_end`). The
mirror asks brokers about one epoch at a time, and `shared_end` evaluates each answer. If the epochs
differ, the mirror asks the other log about the epoch of the answer. Each answer has a lower epoch,
so this ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

from msgspec import Struct


class EpochStart(NamedTuple):
    """The first offset that was written in a leader epoch."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The offset after the last record of a leader epoch in one log; -1, -1 where a broker has no
    epoch as low as the one asked for.
    """

    epoch: int
    end_offset: int


class LogHistory(Struct, frozen=True):
    """A log's first offset, the offset after its last one, and the leader epochs of its records,
    oldest first.
    """

    start_offset: int
    end_offset: int
    epochs: tuple[EpochStart, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when the log holds no offset."""
        return self.end_offset <= self.start_offset

    @property
    def last_epoch(self) -> EpochEnd | None:
        """The epoch of the last record; None when no epoch is known."""
        return EpochEnd(self.epochs[-1].epoch, self.end_offset) if self.epochs else None

    def end_of(self, epoch: int) -> EpochEnd | None:
        """The largest epoch of the log that is not above `epoch`, and where it ends; None when
        every epoch is above it.
        """
        above = bisect_right(self.epochs, epoch, key=lambda entry: entry.epoch)
        if above == 0:
            return None
        end_offset = self.epochs[above].start_offset if above < len(self.epochs) else self.end_offset
        return EpochEnd(self.epochs[above - 1].epoch, end_offset)


def history_of(start_offset: int, end_offset: int, epochs: Iterable[tuple[int, int]]) -> LogHistory:
    """The history of a log whose table has these (epoch, first offset); epochs without a record are
    left out.
    """
    written = tuple(EpochStart(epoch, start) for epoch, start in epochs if start < end_offset)
    return LogHistory(start_offset, end_offset, written)


def shared_end(own: EpochEnd, other: EpochEnd) -> int | None:
    """The offset up to which two logs agree, by their ends of the same epoch; None if the epochs of
    the two answers differ.
    """
    return min(own.end_offset, other.end_offset) if own.epoch == other.epoch else None


def common_end(copy: LogHistory, source: LogHistory) -> int:
    """The offset up to which both logs hold the same history.

    Equal to the copy's end when the copy is a prefix of the source. For logs without a shared
    offset or without known epochs, only their ends are compared.
    """
    lower_end = min(copy.end_offset, source.end_offset)
    higher_start = max(copy.start_offset, source.start_offset)
    asked = copy.last_epoch
    if lower_end <= higher_start or asked is None or not source.epochs:
        return lower_end
    for log in cycle((source, copy)):
        answer = log.end_of(asked.epoch)
        if answer is None:
            break
        shared = shared_end(asked, answer)
        if shared is not None:
            return shared
        asked = answer
    return higher_start
