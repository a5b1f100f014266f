"""The logs on a disk in memory: their batches, and the slices of them that readers get."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from broker.log.core.leader_epochs import EpochStart
from broker.log.segments.log_slice import LogSlice
from broker.settings.core.topic_configs import LogConfig
from wire.batches.record_batch import BatchHeader, iterate_headers


@dataclass(slots=True)
class Batch:
    """One stored batch."""

    base_offset: int
    last_offset: int
    epoch: int
    content: bytes


@dataclass(slots=True)
class StoredLog:
    """The files of one partition on a disk."""

    topic: str
    partition: int
    topic_id: bytes
    batches: list[Batch] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)
    start: int = 0
    flushed: int = 0
    high_watermark: int = 0
    config: LogConfig | None = None

    @property
    def end(self) -> int:
        """Its log end offset."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start


class MemorySlice(LogSlice):
    """Batches on their way to a reader."""

    __slots__ = ("__weakref__", "_content")

    def __init__(self, batches: list[Batch], offset: int) -> None:
        self._content = b"".join(batch.content for batch in batches)
        self.fd = next(_DESCRIPTORS)
        _SLICES[self.fd] = self
        self.position = 0
        self.length = len(self._content)
        self.base_offset = batches[0].base_offset if batches else offset
        self.next_offset = batches[-1].last_offset + 1 if batches else offset
        self.segment_base_offset = 0

    def read_bytes(self) -> bytes:
        return self._content

    def headers(self) -> Iterator[BatchHeader]:
        return (header for _, header in iterate_headers(self._content))

    def release(self) -> None:
        """Do nothing: the slice holds no file."""


_DESCRIPTORS = itertools.count(2_000_000)
_SLICES: WeakValueDictionary[int, MemorySlice] = WeakValueDictionary()


def slice_behind(descriptor: int) -> MemorySlice:
    """The slice whose `fd` this is."""
    return _SLICES[descriptor]
