"""Maps source offsets to target offsets for all records that a translate link has mirrored.

A partition's map is a sequence of runs: `record_count` records that lie one after the other at both
sites, from `source_offset` there and `target_offset` here. A topic without transactions has a
single run; each hole (a skipped marker, an aborted batch, a record compacted away, another client's
record at the target) begins another one. Translation is exact at any age, unlike MirrorMaker 2's
samples, because entries are kept until both logs have dropped their records.

  a. Runs grow in both offsets and never overlap. b. `downstream` and `upstream` never go back when
  their argument grows. c. `downstream(o)` is the offset of the first mirrored record at or after
  `o`: a consumer that starts there misses nothing
     and reads nothing again.

Runs are kept in three columns of machine integers: 24 bytes each. Stored in chunks of `CHUNK_RUNS`,
so that a change rewrites one small record of the compacted topic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CHUNK_RUNS = 256
"""Runs in one stored chunk."""


class Run(NamedTuple):
    """`record_count` records at consecutive offsets of both sites."""

    source_offset: int
    target_offset: int
    record_count: int

    @property
    def source_end(self) -> int:
        """The source offset after the run."""
        return self.source_offset + self.record_count

    @property
    def target_end(self) -> int:
        """The target offset after the run."""
        return self.target_offset + self.record_count


class RunsOverlap(ValueError):
    """A run does not follow the existing ones."""


class OffsetMap:
    """The runs of one partition, oldest first."""

    __slots__ = ("_counts", "_dropped", "_sources", "_targets")

    def __init__(self) -> None:
        # arrays of 64-bit numbers: a map may have millions of runs, and objects would need ten
        # times the memory
        self._sources = array("q")
        self._targets = array("q")
        self._counts = array("q")
        # Number of runs dropped at the front since the first one: it keeps the numbers of chunks
        # unchanged.
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._sources, self._targets, self._counts)

    @property
    def last(self) -> Run | None:
        """The newest run."""
        return self._at(len(self) - 1) if self._sources else None

    @property
    def last_chunk(self) -> int:
        """Number of the chunk that the newest run belongs to; -1 of an empty map."""
        return (self._dropped + len(self) - 1) // CHUNK_RUNS if self._sources else -1

    def append(self, source_offset: int, target_offset: int, count: int) -> None:
        """Records were mirrored: extends the newest run, or begins one. Raises RunsOverlap if they
        are not after the newest run.
        """
        if count < 1:
            raise ValueError(f"a run has at least one record, not {count}")
        last = self.last
        if last is not None:
            # both must grow: a binary search over either column relies on it
            if source_offset < last.source_end or target_offset < last.target_end:
                raise RunsOverlap(f"{source_offset}->{target_offset} lies before the end of {last}")
            if source_offset == last.source_end and target_offset == last.target_end:
                self._counts[-1] += count
                return
        self._sources.append(source_offset)
        self._targets.append(target_offset)
        self._counts.append(count)

    def downstream(self, source_offset: int, *, end: int) -> int:
        """The target offset of the first mirrored record at or after `source_offset`; `end` when
        there is none yet.
        """
        index = bisect_right(self._sources, source_offset) - 1
        if index >= 0 and source_offset < self._at(index).source_end:
            run = self._at(index)
            return run.target_offset + source_offset - run.source_offset
        return self._targets[index + 1] if index + 1 < len(self) else end

    def upstream(self, target_offset: int, *, end: int) -> int:
        """The source offset of the first mirrored record at or after `target_offset`; `end` when
        there is none yet.
        """
        index = bisect_right(self._targets, target_offset) - 1
        if index >= 0 and target_offset < self._at(index).target_end:
            run = self._at(index)
            return run.source_offset + target_offset - run.target_offset
        return self._sources[index + 1] if index + 1 < len(self) else end

    def past_target(self, target_offset: int, *, below_source: int) -> int:
        """The target offset after the unbroken sequence of records from `target_offset` on that
        were brought from below `below_source`.
        """
        return _past(self._targets, self._sources, self._counts, start=target_offset, below=below_source)

    def past_source(self, source_offset: int, *, below_target: int) -> int:
        """The source offset after the unbroken sequence of records from `source_offset` on that are
        at the target below `below_target`.
        """
        return _past(self._sources, self._targets, self._counts, start=source_offset, below=below_target)

    def target_truncated_at(self, target_offset: int) -> None:
        """Drop entries at or after `target_offset`: the target has lost their records."""
        while self._sources and self._targets[-1] + self._counts[-1] > target_offset:
            # a run may be truncated in its middle
            kept = target_offset - self._targets[-1]
            if kept > 0:
                self._counts[-1] = kept
                return
            for column in (self._sources, self._targets, self._counts):
                column.pop()

    def trim(self, *, source_start: int, target_start: int) -> range:
        """Drop whole chunks whose records both logs have removed; return the numbers of these
        chunks.
        """
        first_chunk = self._dropped // CHUNK_RUNS
        gone = 0
        # whole chunks only, because a stored chunk is one record of the link's topic
        while len(self) - gone > CHUNK_RUNS:
            last = self._at(gone + CHUNK_RUNS - 1)
            if last.source_end > source_start or last.target_end > target_start:
                break
            gone += CHUNK_RUNS
        if gone:
            # copies, so that the memory of the dropped runs is freed
            self._sources, self._targets, self._counts = self._sources[gone:], self._targets[gone:], self._counts[gone:]
            self._dropped += gone
        return range(first_chunk, first_chunk + gone // CHUNK_RUNS)

    def chunk(self, number: int) -> list[Run]:
        """The runs of one chunk."""
        first = number * CHUNK_RUNS - self._dropped
        return [self._at(index) for index in range(max(0, first), min(len(self), first + CHUNK_RUNS))]

    def tail(self, first_chunk: int) -> OffsetMap:
        """A copy of the map from a chunk on; at least the newest run is in it."""
        last = self.last_chunk
        return OffsetMap.from_chunks(
            [(number, self.chunk(number)) for number in range(min(first_chunk, last), last + 1) if number >= 0]
        )

    @classmethod
    def from_chunks(cls, chunks: Sequence[tuple[int, Sequence[Run]]]) -> OffsetMap:
        """The map of stored chunks. Chunks before a missing one are left out: the missing one was
        dropped.
        """
        ordered = sorted(chunks)
        first = len(ordered)
        # newer chunks are the ones that matter: a gap ends the walk from the newest backwards
        while first > 0 and (first == len(ordered) or ordered[first - 1][0] == ordered[first][0] - 1):
            first -= 1
        built = cls()
        for number, runs in ordered[first:]:
            if not built:
                built._dropped = number * CHUNK_RUNS
            for run in runs:
                built._sources.append(run.source_offset)
                built._targets.append(run.target_offset)
                built._counts.append(run.record_count)
        return built

    def _at(self, index: int) -> Run:
        return Run(self._sources[index], self._targets[index], self._counts[index])


def _past(here: Sequence[int], there: Sequence[int], counts: Sequence[int], *, start: int, below: int) -> int:
    """Walks the runs by their offsets `here` from `start` on, as long as they follow each other and
    lie below `below` there.
    """
    at = start
    index = bisect_right(here, at) - 1
    while 0 <= index < len(here) and here[index] <= at < here[index] + counts[index]:
        within = min(counts[index], below - there[index])
        at = max(at, here[index] + within)
        if within < counts[index]:
            break
        index += 1
    return at
