"""The data types of a reader: its options, and the chunks for its sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from clients.reader.core.positions import Position, ResetPolicy
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.fetch_codec import AbortedTransaction

_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Raw batches of one partition; the first may begin below `position`. With a `problem` there
    are none, and the partition halts.
    """

    place: PartitionKey
    generation: int
    position: Position
    next: Position
    records: memoryview = _EMPTY
    record_count: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    problem: Exception | None = field(default=None, compare=False)


class DamagedLog(Exception):
    """A broker's response is not a sequence of whole batches; the message names the partition and
    the offset.
    """


class Sink(Protocol):
    """Receives chunks."""

    async def put(self, chunk: Chunk) -> None:
        """Take a chunk, waiting for room."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Options of fetching."""

    policy: ResetPolicy = ResetPolicy.LATEST
    partition_bytes: int = 1024 * 1024
    fetch_bytes: int = 50 * 1024 * 1024
    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation_level: int = 0
    rack: str = ""
    leader_backoff_ms: float = 200
    metadata_max_age_ms: float = 300_000
    fetchers: int = 1
    """Maximum number of fetchers for each broker, as Kafka's classic `num.consumer.fetchers`; at
    least 1.
    """

    def __post_init__(self) -> None:
        if self.fetchers < 1:
            raise ValueError(f"{self.fetchers} fetchers are not usable: accepted is 1 or more")
