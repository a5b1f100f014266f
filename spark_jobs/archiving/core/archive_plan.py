"""Plans the ranges that a run of the archive reads, and turns its results into ranges, holes and
problems. Pure.

A run continues at the end of the archived ranges, and reads to the high watermark at its start. The
ranges of a log are read in parallel; afterwards `Settlement` joins them in order, so that each
range begins at the end of the previous one. Ranges are bounded by offsets and by bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_jobs.archiving.core.manifest import ArchivedFile, ArchivedRange, ArchivedTopic, Hole, LogId
from spark_jobs.logs.core.splits import SPLIT_OFFSETS_MIN, SPLITS_PER_CORE, LogEnds, Split, pieces
from wire.protocol.ids import PartitionKey

RANGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The size of a range, estimated by its share of the log's offsets. A worker streams its range: the
bound is for the work that is repeated when a task fails, and for the size of files (an upload to S3
has at most 10,000 parts).
"""


BYTES_PER_OFFSET_GUESSED: Final = 1024
"""For the size of a range of a log whose size is unknown."""


class Piece(NamedTuple):
    """A range for one worker, and the directory of its files. `bytes` is its estimated size."""

    topic_id: str
    split: Split
    is_compacted: bool
    bytes: int = 0

    @property
    def log(self) -> LogId:
        """The log to which it belongs."""
        return LogId(self.topic_id, self.split.partition)


class Stored(NamedTuple):
    """The part of a piece that a worker stored. `first_offset` is the first batch's, `end_offset`
    follows the last one's; both are -1 when the piece holds no batch. `gaps` are between batches;
    at `damaged_at` (-1: no damage) the worker stopped, because the bytes are not a valid batch.
    """

    first_offset: int = -1
    end_offset: int = -1
    batches: int = 0
    records: int = 0
    leader_epochs: tuple[tuple[int, int], ...] = ()
    files: tuple[ArchivedFile, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    damaged_at: int = -1


@dataclass(slots=True)
class ArchivePlan:
    """The plan of a run."""

    pieces: list[Piece] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        """The largest number of offsets that the run reads."""
        return sum(piece.split.until_offset - piece.split.first_offset for piece in self.pieces)


def plan(
    topics: Iterable[ArchivedTopic],
    ends: Mapping[PartitionKey, LogEnds],
    archived: Mapping[LogId, int],
    *,
    lost: Mapping[LogId, str],
    log_bytes: Mapping[PartitionKey, int],
    cores: int,
) -> ArchivePlan:
    """The ranges from where each log's archive ends to its high watermark. `lost` has a sentence
    for each log that lacks archived records, of which nothing is read. `log_bytes` has the sizes of
    logs; a log of unknown size is divided by offsets alone.
    """
    found = ArchivePlan()
    wanted: list[tuple[ArchivedTopic, int, int, int]] = []
    for topic in topics:
        for partition in range(topic.partition_count):
            held = ends.get((topic.name, partition))
            if held is None:
                continue
            log = LogId(topic.topic_id, partition)
            if log in lost:
                found.problems.append(lost[log])
                continue
            position = archived.get(log)
            if position is not None and position > held.end_offset:
                found.problems.append(
                    f"{topic.name}-{partition}: the log ends at {held.end_offset}, the archive at {position}: "
                    "the source has lost records or is another site"
                )
                continue
            if position is not None and position < held.start_offset:
                found.holes.append(_hole(topic, partition, position, held.start_offset))
            wanted.append((topic, partition, max(position or 0, held.start_offset), held.end_offset))
    total = sum(until - first for _, _, first, until in wanted)
    length = max(SPLIT_OFFSETS_MIN, -(-total // (cores * SPLITS_PER_CORE)))
    for topic, partition, first, until in wanted:
        key = (topic.name, partition)
        bounded = min(length, _offsets_within(RANGE_BYTES_MAX, ends[key], log_bytes.get(key, 0)))
        for split in pieces("", key, first=first, until=until, length=bounded):
            size_bytes = _estimated_bytes(split, ends[key], log_bytes.get(key))
            found.pieces.append(Piece(topic.topic_id, split, topic.is_compacted, size_bytes))
    return found


def _offsets_within(size_bytes: int, held: LogEnds, log_bytes: int) -> int:
    """The number of offsets of a log that have about this size, at least one."""
    offsets = held.end_offset - held.start_offset
    return max(1, offsets if log_bytes <= size_bytes else offsets * size_bytes // log_bytes)


def _estimated_bytes(split: Split, held: LogEnds, log_bytes: int | None) -> int:
    """The share of the log's bytes by offsets."""
    offsets = split.until_offset - split.first_offset
    if log_bytes is None:
        return offsets * BYTES_PER_OFFSET_GUESSED
    return log_bytes * offsets // (held.end_offset - held.start_offset)


def _hole(topic: ArchivedTopic, partition: int, first_offset: int, end_offset: int) -> Hole:
    return Hole(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        first_offset=first_offset,
        end_offset=end_offset,
    )


@dataclass(slots=True)
class Settled:
    """The ranges and holes of a manifest, and problems as sentences."""

    ranges: list[ArchivedRange] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Settlement:
    """Joins the results of a run, wave by wave in the order of the plan. After a damaged batch,
    further results of the log are discarded; the next run reads these offsets again.
    """

    _ends: dict[LogId, int] = field(default_factory=dict)
    _damaged: set[LogId] = field(default_factory=set)

    def unharmed(self, pieces: Iterable[Piece]) -> list[Piece]:
        """The pieces without those that lie behind a damaged batch."""
        return [piece for piece in pieces if piece.log not in self._damaged]

    def settled(self, results: Iterable[tuple[Piece, Stored]]) -> Settled:
        """The ranges, holes and problems of one wave."""
        found = Settled()
        for piece, stored in sorted(results, key=lambda one: (one[0].log, one[0].split.first_offset)):
            if piece.log in self._damaged:
                continue
            position = self._ends.setdefault(piece.log, piece.split.first_offset)
            if stored.batches:
                position = _take(found, piece, stored, position)
            self._ends[piece.log] = position
            if stored.damaged_at >= 0:
                self._damaged.add(piece.log)
                found.problems.append(
                    f"{piece.split.topic}-{piece.split.partition}: the batch at offset {stored.damaged_at} is damaged: "
                    "the archive of this partition ends there"
                )
        return found


def _take(found: Settled, piece: Piece, stored: Stored, position: int) -> int:
    """Add the range and its holes; returns the start of the next range."""
    split = piece.split
    gaps = [] if piece.is_compacted else list(stored.gaps)
    first_offset = position
    if stored.first_offset > position and not piece.is_compacted:
        gaps.insert(0, (position, stored.first_offset))
        first_offset = stored.first_offset
    found.holes += [
        Hole(
            topic=split.topic,
            topic_id=piece.topic_id,
            partition=split.partition,
            first_offset=start,
            end_offset=end,
        )
        for start, end in gaps
    ]
    found.ranges.append(
        ArchivedRange(
            topic=split.topic,
            topic_id=piece.topic_id,
            partition=split.partition,
            first_offset=first_offset,
            end_offset=stored.end_offset,
            batches=stored.batches,
            records=stored.records,
            leader_epochs=stored.leader_epochs,
            files=stored.files,
        )
    )
    return stored.end_offset
