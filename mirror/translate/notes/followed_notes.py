"""The notes of other links in their topics at a cluster, read on from where the last look ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from mirror.translate.notes.offset_store import read_topic
from runtime.clock import Clock
from wire.client.raw_client import KafkaClient

READ_AGAIN_MS: Final = 100
"""Time (ms) for which notes count as fresh."""


class Notes(Protocol):
    """The state that the records of one topic build up."""

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """The next record of the topic."""
        ...


Noted = TypeVar("Noted", bound=Notes)


class _Read(Generic[Noted]):
    def __init__(self, topic_id: UUID, notes: Noted) -> None:
        self.topic_id = topic_id
        self.notes = notes
        self.read_to = 0


class FollowedNotes(Generic[Noted]):
    """The notes in all topics with one prefix; call `refresh` before reading."""

    def __init__(self, client: KafkaClient, *, prefix: str, make: Callable[[], Noted], clock: Clock) -> None:
        self._client = client
        self._prefix = prefix
        self._make = make
        self._clock = clock
        self._read: dict[str, _Read[Noted]] = {}
        self._read_at_ms = float("-inf")
        self._reading = asyncio.Lock()

    async def refresh(self, topics: Mapping[str, UUID]) -> None:
        """Read what is new in the notes among the cluster's topics. Raises Unreachable when it does
        not answer.
        """
        # Callers that come during a read wait for it, and then find its notes fresh.
        async with self._reading:
            began_ms = self._clock.monotonic_ms()
            if began_ms - self._read_at_ms < READ_AGAIN_MS:
                return
            names = sorted(name for name in topics if name.startswith(self._prefix))
            for name in self._read.keys() - names:
                del self._read[name]
            for name in names:
                await self._read_on(name, topics[name])
            # From the beginning: the read may have missed what was written while it lasted.
            self._read_at_ms = began_ms

    def all(self) -> Iterable[Noted]:
        """The notes of each topic."""
        return [read.notes for read in self._read.values()]

    async def _read_on(self, name: str, topic_id: UUID) -> None:
        known = self._read.get(name)
        read = known if known is not None and known.topic_id == topic_id else _Read(topic_id, self._make())
        end = await read_topic(self._client, name, read.notes.apply, first_offset=read.read_to)
        if end < read.read_to:  # The log was truncated, or the topic was created again at a cluster without topic ids.
            read = _Read(topic_id, self._make())
            end = await read_topic(self._client, name, read.notes.apply)
        read.read_to = end
        self._read[name] = read
