"""The files of a Structured Streaming checkpoint, as far as offsets of topics are in them. Pure.

`offsets/N` is written before batch N runs, `commits/N` after it: a line with the version, one with
Spark's metadata, then a line for each source of the query, as that source encodes it, or `-`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_jobs.connector.core.offsets import PartitionOffsets, by_topic, decode_position
from wire.protocol.ids import PartitionKey

Position = tuple[PartitionKey, int]
"""A partition, and the offset up to which it was read."""
VERSION: Final = "v1"
NO_OFFSETS: Final = "-"


class InvalidCheckpoint(ValueError):
    """The files are not the checkpoint of a query over topics."""


@dataclass(frozen=True, slots=True)
class OffsetsFile:
    """A file `offsets/N`: Spark's metadata unchanged, and a line for each source."""

    metadata: str
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((VERSION, self.metadata, *self.sources))


def parse_offsets_file(text: str) -> OffsetsFile:
    """Parse the file. Raises InvalidCheckpoint for another version."""
    version, *lines = text.splitlines() or [""]
    if version != VERSION or len(lines) < 2:
        raise InvalidCheckpoint(f"the offsets of a batch begin with {version!r}; accepted: {VERSION}, then metadata")
    return OffsetsFile(lines[0], tuple(lines[1:]))


def batch_to_go_on_from(offsets: Iterable[int], commits: Iterable[int]) -> int:
    """The last completed batch. Raises InvalidCheckpoint when there is none."""
    ended = set(offsets) & set(commits)
    if not ended:
        raise InvalidCheckpoint("no batch of this checkpoint has ended: start the query without a checkpoint")
    return max(ended)


def topic_offsets(source: str) -> PartitionOffsets | None:
    """The offsets of one source, None if the line has none, or those of another kind of source."""
    if source == NO_OFFSETS:
        return None
    try:
        return decode_position(json.loads(source))[0]
    except (ValueError, AttributeError, TypeError):
        return None


def positions(file: OffsetsFile) -> set[Position]:
    """The positions of all sources. Two sources may read the same topics, up to other offsets."""
    return {position for source in file.sources for position in (topic_offsets(source) or {}).items()}


def rewritten(file: OffsetsFile, translated: Mapping[Position, tuple[str, int, int]]) -> OffsetsFile:
    """The file with each position translated to topic, partition and offset of the other end.
    Leader epochs are left out, because the other end has different ones.
    """
    sources = []
    for source in file.sources:
        offsets = topic_offsets(source)
        if offsets is None:
            sources.append(source)
            continue
        there = {
            (topic, partition): offset for topic, partition, offset in map(translated.__getitem__, offsets.items())
        }
        sources.append(json.dumps(by_topic(there), separators=(",", ":")))
    return replace(file, sources=tuple(sources))
