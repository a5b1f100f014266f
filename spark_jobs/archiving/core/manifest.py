"""The manifests of an archive: the ranges that each wave of a run stored, the end of each
partition, the missing offsets. Pure.

A wave writes one JSON document. Offsets are those of logs: `first_offset` is included, `end_offset`
is not. Over all manifests the ranges of a partition are contiguous, except for holes: offsets that
the source deleted before they were archived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

UNFINISHED_SUFFIX: Final = ".unfinished"
"""Ends the name of a small file while it is written."""
BATCHES, RECORDS = "batches", "records"
FORMATS = (BATCHES, RECORDS)


class LogId(NamedTuple):
    """A partition of a topic, identified by the topic's id: a topic that is created again has
    another id.
    """

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of the archive; `path` is relative to the archive's directory, `sha256` is hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic as it was at the start of a run; `configs` are those that are set on the topic."""

    name: str
    topic_id: str
    partition_count: int
    configs: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        """True if compaction may have left gaps between the topic's batches."""
        return "compact" in self.configs.get("cleanup.policy", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRange:
    """Offsets of one partition that one worker stored. `leader_epochs` are pairs of a leader epoch
    and the offset of its first batch in the range.
    """

    topic: str
    topic_id: str
    partition: int
    first_offset: int
    end_offset: int
    batches: int
    records: int
    leader_epochs: tuple[tuple[int, int], ...]
    files: tuple[ArchivedFile, ...]

    @property
    def log(self) -> LogId:
        """The log to which it belongs."""
        return LogId(self.topic_id, self.partition)

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Offsets that the source deleted before they were archived."""

    topic: str
    topic_id: str
    partition: int
    first_offset: int
    end_offset: int

    @property
    def log(self) -> LogId:
        """The log to which it belongs."""
        return LogId(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The offset at which the archive of a partition begins, because retention has removed earlier
    ranges.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int

    @property
    def log(self) -> LogId:
        """The log to which it belongs."""
        return LogId(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A document that adds ranges, or removes them by retention. Numbers count from 1;
    `started_at_ms` is Unix ms.
    """

    number: int
    format: str
    started_at_ms: int
    cluster_id: str
    topics: tuple[ArchivedTopic, ...]
    ranges: tuple[ArchivedRange, ...]
    holes: tuple[Hole, ...]
    log_starts: tuple[LogStart, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def next_manifest(manifests: Sequence[Manifest], format_name: str, *, started_at_ms: int = 0) -> Manifest:
    """An empty manifest with the next number."""
    return Manifest(
        number=max((manifest.number for manifest in manifests), default=0) + 1,
        format=format_name,
        started_at_ms=started_at_ms,
        cluster_id=manifests[-1].cluster_id if manifests else "",
        topics=(),
        ranges=(),
        holes=(),
    )


def manifest_of(document: Any) -> Manifest:
    """The manifest in a JSON document. ValueError when it is none."""
    try:
        return Manifest(
            # as `run` in archives of the time when a run wrote one manifest
            number=int(document["number"] if "number" in document else document["run"]),
            format=str(document["format"]),
            started_at_ms=int(document["started_at_ms"]),
            cluster_id=str(document["cluster_id"]),
            topics=tuple(ArchivedTopic(**topic) for topic in document["topics"]),
            ranges=tuple(_range_of(fields) for fields in document["ranges"]),
            holes=tuple(Hole(**hole) for hole in document["holes"]),
            log_starts=tuple(LogStart(**start) for start in document.get("log_starts", ())),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a manifest of an archive: {error!r}") from error


def _range_of(fields: Mapping[str, Any]) -> ArchivedRange:
    files = tuple(ArchivedFile(**file) for file in fields["files"])
    epochs = tuple((int(epoch), int(offset)) for epoch, offset in fields["leader_epochs"])
    return ArchivedRange(**{**fields, "files": files, "leader_epochs": epochs})


def without_expired(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The manifests without the ranges and holes that retention has removed."""
    starts: dict[LogId, int] = {}
    for one in (one for manifest in manifests for one in manifest.log_starts):
        starts[one.log] = max(starts.get(one.log, 0), one.start_offset)
    return [
        replace(
            manifest,
            ranges=tuple(one for one in manifest.ranges if one.first_offset >= starts.get(one.log, 0)),
            holes=tuple(one for one in manifest.holes if one.first_offset >= starts.get(one.log, 0)),
        )
        for manifest in manifests
    ]


def archived_ends(manifests: Iterable[Manifest]) -> dict[LogId, int]:
    """The offset at which the next run continues, by log: the end of all ranges that are stored,
    named as a hole, or removed.
    """
    ends: dict[LogId, int] = {}
    for manifest in manifests:
        places = [(one.log, one.end_offset) for one in manifest.ranges]
        places += [(hole.log, hole.end_offset) for hole in manifest.holes]
        places += [(start.log, start.start_offset) for start in manifest.log_starts]
        for log, end_offset in places:
            ends[log] = max(ends.get(log, 0), end_offset)
    return ends


def by_log(manifests: Sequence[Manifest]) -> dict[LogId, list[ArchivedRange]]:
    """All ranges of each log in the order of their offsets."""
    found: dict[LogId, list[ArchivedRange]] = defaultdict(list)
    for manifest in manifests:
        for one in manifest.ranges:
            found[one.log].append(one)
    return {log: sorted(ranges, key=lambda one: one.first_offset) for log, ranges in found.items()}


def newest_topics(manifests: Iterable[Manifest]) -> dict[str, ArchivedTopic]:
    """The newest topic of each name, as the last run that read it found it."""
    found: dict[str, ArchivedTopic] = {}
    for manifest in sorted(manifests, key=lambda one: one.number):
        found |= {topic.name: topic for topic in manifest.topics}
    return found


def files_of(manifests: Iterable[Manifest]) -> set[str]:
    """The paths of all files that belong to the archive."""
    return {file.path for manifest in manifests for one in manifest.ranges for file in one.files}


def chain_problems(manifests: Sequence[Manifest]) -> list[str]:
    """Sentences about ranges that do not join, manifests that are missing, and mixed formats."""
    problems = []
    numbers = {manifest.number for manifest in manifests}
    if missing := sorted(set(range(1, max(numbers, default=0) + 1)) - numbers):
        problems.append(f"manifests are missing: {', '.join(f'{number:08d}' for number in missing)}")
    if len({manifest.format for manifest in manifests}) > 1:
        problems.append("the archive holds files of two formats")
    holes = {(hole.log, hole.first_offset): hole.end_offset for manifest in manifests for hole in manifest.holes}
    for log, ranges in sorted(by_log(manifests).items()):
        for before, after in pairwise(ranges):
            expected = before.end_offset
            while (log, expected) in holes:
                expected = holes[log, expected]
            if after.first_offset != expected:
                place = f"{after.topic}-{after.partition}"
                problems.append(f"{place}: a range begins at offset {after.first_offset}, expected {expected}")
    return problems
